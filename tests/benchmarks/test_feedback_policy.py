"""The scripted model of benchmarks/feedback.py: it uses only the text of the chat, and no text makes it fail."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from benchmarks.feedback_cases import SLOW, Case, cases
from benchmarks.feedback_inspected import inspected_cases
from benchmarks.feedback_policy import answer, read
from benchmarks.feedback_repairs import edits
from benchmarks.feedback_variants import VARIANTS
from kerneldyno.client import EvalResult
from kerneldyno.rewards.feedback import feedback
from kerneldyno.rollout import prompts
from kerneldyno.rollout.problems import Message, Problem
from kerneldyno.rpc.jsonio import result_from_json
from kerneldyno.v1.reward_service_pb2 import Extraction

pytestmark = pytest.mark.pure

CASES = {case.name: case for case in [*cases(), *inspected_cases()]}
FOUND = Extraction(method=Extraction.METHOD_FENCED_ENTRY_POINT)


def chat(case: Case, told: str, *, correct: bool = False) -> list[Message]:
    """Return the chat that a rollout sends after the broken program and a text about it."""
    problem = Problem(case.problem, case.reference)
    reply = prompts.next_message(problem, told, correct=correct)
    return prompts.conversation(prompts.first_messages(problem, case.backend), [(block(case.source), reply)])


def block(source: str) -> str:
    return f"```python\n{source.strip()}\n```\n"


def raised(kind: str, message: str, traceback: str) -> EvalResult:
    error = {"stage": "compile", "type": kind, "message": message, "traceback": traceback}
    return result_from_json({
        "id": "a", "outcome": "RUNTIME_ERROR", "message": f"{kind}: {message}",
        "runtime_error": {"kind": "exception", "stage": "compile", "exception": error},
    })  # fmt: skip


def kernel_error(kind: str, message: str, line: int, source: str) -> EvalResult:
    """Return the result that Triton's interpreter causes if a kernel raises an exception."""
    head = "Traceback (own lines only):\n"
    trace = (
        f'{head}  File "candidate.py", line 25, in forward\n    softmax_kernel[grid](x)\nInterpreterError: {message}\n'
        f'caused by:\n{head}  File "candidate.py", line {line}, in softmax_kernel\n    {source}\n{kind}: {message}'
    )
    return raised("InterpreterError", f"{kind}({message!r})", trace)


def infrastructure() -> EvalResult:
    evidence = {"cause": "NODE_LOST", "detail": "gone", "retryable": True}
    return result_from_json({"id": "a", "outcome": "INFRASTRUCTURE_ERROR", "infrastructure_error": evidence})


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("none", "outcome", "json")])
def test_a_failure_of_the_machinery_makes_it_hand_in_the_same_again(variant: str) -> None:
    case = CASES["exponential overflows"]
    told = VARIANTS[variant](infrastructure(), FOUND)
    assert "no verdict" in told
    assert answer(chat(case, told), 3) == block(case.source)


@pytest.mark.parametrize("told", ["", " \n", "no news", "\x00", "line", "line 999999", "at [9, 9]", "at [, ]"])
def test_a_text_that_says_nothing_makes_it_guess(told: str) -> None:
    case = CASES["exponential overflows"]
    answers = [answer(chat(case, told), seed) for seed in range(20)]
    assert answers == [answer(chat(case, told), seed) for seed in range(20)], "the same seed guesses the same"
    offered = {block(edit.source) for edit in edits(case.source)}
    assert set(answers) <= offered
    assert len(set(answers)) > 5


@pytest.mark.parametrize(
    "told",
    ["1 of 0 elements", "9 of 9 elements, 1e999 times what is allowed", ". times what is allowed, 1.2.3x", "[" * 999],
)
def test_numbers_that_make_no_sense(told: str) -> None:
    assert answer(chat(CASES["padding takes part"], f"INCORRECT: {told}"), 0)


def test_a_text_cut_off_anywhere() -> None:
    case = CASES["rows not turned into a column"]
    line = "offsets = row * columns + column[None, :]"
    whole = kernel_error("ValueError", "Cannot make_shape_compatible: incompatible dimensions at index 1", 11, line)
    repaired = [block(case.right) == answer(chat(case, feedback(whole, limit=limit)), 0) for limit in range(0, 600, 7)]
    offered = {block(edit.source) for edit in edits(case.source)}
    assert all(answer(chat(case, feedback(whole, limit=limit)), 0) in offered for limit in range(0, 600, 7))
    assert repaired.count(True) >= 1
    assert not repaired[0]


def test_an_answer_without_code_before_it() -> None:
    case = CASES["padding takes part"]
    messages = chat(case, "")
    with pytest.raises(ValueError, match="no program to repair"):
        answer(messages[:1], 0)
    messages[1]["content"] = "I cannot."
    assert answer(messages, 0).startswith("```python\n")


@pytest.mark.parametrize("name", CASES)
def test_what_a_case_hides_changes_nothing(name: str) -> None:
    """The model sees only the chat, and the chat has neither the name, nor the family, nor the repaired program."""
    assert list(inspect.signature(answer).parameters) == ["messages", "seed"]
    case = CASES[name]
    hidden = dataclasses.replace(case, name="?", family="?", right="?")
    told = "INCORRECT: 9 of 256000 elements of output are out of tolerance, some of them not finite."
    for text in ("", told):
        assert chat(case, text) == chat(hidden, text)
        assert [answer(chat(case, text), seed) for seed in range(3)] == [
            answer(chat(hidden, text), seed) for seed in range(3)
        ]
    whole = "".join(message["content"] for message in chat(case, told))
    assert name not in whole
    assert block(case.right) not in whole


@pytest.mark.parametrize("name", CASES)
def test_each_program_is_broken_and_much_can_be_tried(name: str) -> None:
    case = CASES[name]
    assert case.source != case.right
    offered = edits(case.source)
    assert len(offered) >= 5
    assert all(edit.source != case.source for edit in offered)
    assert len({edit.source for edit in offered}) == len(offered)


def test_it_repairs_what_a_text_names() -> None:
    case = CASES["unknown name in a kernel"]
    line = "tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=masks)"
    result = kernel_error("NameError", "name 'masks' is not defined", 12, line)
    assert all(answer(chat(case, VARIANTS["default"](result, FOUND)), seed) == block(case.right) for seed in range(9))
    blind = [answer(chat(case, VARIANTS["none"](result, FOUND)), seed) == block(case.right) for seed in range(30)]
    assert blind.count(True) < 10


def test_it_goes_on_from_the_best_and_never_hands_in_the_same_twice() -> None:
    case = CASES["unknown name, then overflow"]
    better = case.source.replace("masks", "mask")
    problem = Problem(case.problem, case.reference)
    texts = [
        "RUNTIME_ERROR: name 'masks' is not defined",
        "INCORRECT: some of them not finite.",
        "RUNTIME_ERROR: worse",
    ]
    programs = [case.source, better, better.replace("exp", "exq")]
    told = [prompts.next_message(problem, text, correct=False) for text in texts]
    turns = list(zip(map(block, programs), told, strict=True))
    found = answer(prompts.conversation(prompts.first_messages(problem, case.backend), turns), 0)
    assert found in {block(edit.source) for edit in edits(better)}
    assert found not in map(block, programs)


def slow(owner: str, *, call: float = 1e-4, device: float = 9e-5, launches: int = 1) -> EvalResult:
    """Return a CORRECT result with a profile, as a GPU gives it. The numbers are made up."""
    kernels = [{"name": "some_kernel", "owner": owner, "launches": launches, "device_seconds": device}]
    times: dict[str, Any] = {"samples": 9, "regime": "REGIME_AS_CALLED"}
    return result_from_json({
        "id": "a", "outcome": "CORRECT", "correct": True, "speedup": 0.5,
        "candidate_timing": {"median_seconds": call, **times}, "reference_timing": {"median_seconds": call / 2, **times},
        "profile": {"kernels": kernels, "device_time_coverage": 0.5, "calls": 1},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("a copy on either side", slow("OWNER_MEMORY")),
        ("waits for the device", slow("OWNER_CANDIDATE", device=1e-6)),
        ("the library does it", slow("OWNER_TORCH")),
    ],
)
def test_it_reads_a_profile(name: str, result: EvalResult) -> None:
    """The profiles are made up: nobody has run this with profiles of a GPU."""
    case = CASES[name]
    assert case.family == SLOW
    told = {variant: VARIANTS[variant](result, FOUND) for variant in ("default", "without profile")}
    answers = {answer(chat(case, told["default"], correct=True), seed) for seed in range(5)}
    assert answers == {block(case.right)}
    assert read(told["without profile"]).points.keys() < read(told["default"]).points.keys()
