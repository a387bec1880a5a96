"""A real judge on first calls, on repeated calls, and on candidates that write outside their tensors."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.checks import repetition
from kerneldyno.evaluator.judge.checks.correctness import Checked
from kerneldyno.evaluator.judge.comparison.fingerprint import Fingerprint
from kerneldyno.evaluator.judge.problems.cache import Problems
from kerneldyno.evaluator.judge.problems.trial import Trial
from kerneldyno.evaluator.judge.results.record import Finished, Record
from kerneldyno.evaluator.judge.runners.answers import Called
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.shared.spec import ProblemSpec
from kerneldyno.evaluator.toolkits.local import LocalProblem, build_local
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, candidate, request

pytestmark = pytest.mark.slow

LABEL = {"memory_errors": "MEMORY_ERRORS_LABEL"}
#: The host's allocator gives a block of this size eight bytes more, so that two elements too many harm nobody.
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(50, 1010)]
"""
KERNEL = """
import torch
from torch import nn
import triton
import triton.language as tl

@triton.jit
def relu(x_ptr, y_ptr, count, beyond, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count, other=1.0)
    {extra}
    tl.store(y_ptr + at, tl.maximum(x, 0.0), at < count + beyond)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        {body}
        y = {made}
        relu[(triton.cdiv(x.numel() + {beyond}, 1024),)](x, y, x.numel(), {beyond}, BLOCK=1024)
        {end}
        return y
"""


def kernel(
    *, beyond: int = 0, extra: str = "pass", made: str = "torch.empty_like(x)", body: str = "pass", end: str = "pass"
) -> str:
    return KERNEL.format(beyond=beyond, extra=extra, made=made, body=body, end=end)


def judged(judge: Judge, code: str, **changes: Any) -> dict[str, Any]:
    return judge.evaluate(request(code, reference_code=REFERENCE, stress_inputs=False, **changes))


def evidence(result: dict[str, Any]) -> str:
    found: list[str] = [finding["evidence"] for finding in result["findings"] if finding["id"] == "M01"]
    return "".join(found)


BROKEN = {
    "behind its output": (kernel(beyond=2), "8 bytes behind the end of a float32 tensor of shape (50, 1010)"),
    "behind zeros": (kernel(beyond=2, made="torch.zeros_like(x)"), "8 bytes behind the end of a float32 tensor"),
    "behind what an operator made": (kernel(beyond=2, made="x * 2"), "8 bytes behind the end of a float32 tensor"),
    "before its output": (
        # On a GPU another tensor must lie there in ordinary calls.
        kernel(extra="tl.store(y_ptr - 12 + tl.arange(0, 2), 1.0)", body="pad = torch.empty_like(x)"),
        "8 bytes before the beginning of a float32 tensor of shape (50, 1010), the nearest 40 bytes (10 elements) away",
    ),
    "behind its input": (
        kernel(extra="tl.store(x_ptr + count + 4 + tl.arange(0, 8), 1.1)"),
        "32 bytes behind the end of an input",
    ),
    "far behind its input": (
        kernel(extra="tl.store(x_ptr + count + 1000 + tl.arange(0, 8), 1.1)"),
        "32 bytes behind the end of an input, and not right behind it",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_write_outside_is_wrong_or_a_finding(judge: Judge, name: str) -> None:
    code, said = BROKEN[name]
    result = judged(judge, code)
    assert result["outcome"] == "INCORRECT", result["message"]
    assert result["incorrect"]["kind"] == "memory"
    assert result["incorrect"]["trial"] == (-2 if "input" in name else -3)
    assert f"writes outside its tensors: {said}" in result["message"]
    assert said in evidence(result)
    assert result["correctness"]["passed_trials"] == result["correctness"]["total_trials"] > 0
    labelled = judged(judge, code, **LABEL)
    assert labelled["outcome"] == "CORRECT", labelled["message"]
    assert said in evidence(labelled)
    assert labelled["correctness"]["deterministic"]


@pytest.mark.long
def test_writes_of_a_whole_block_too_many_are_seen(judge: Judge) -> None:
    """The output has pages of its own, and what lies behind it in the last one is nobody's."""
    reference = REFERENCE.replace("50, 1010", "4096 * 1024 + 256")
    code = kernel(beyond=512).replace("1024", "65536")
    result = judge.evaluate(request(code, reference_code=reference, stress_inputs=False, num_correct_trials=1))
    assert result["outcome"] == "INCORRECT", result["message"]
    assert evidence(result).startswith("writes outside its tensors: 2048 bytes behind the end of a float32 tensor of")


def test_a_write_between_inputs_changes_no_input(judge: Judge) -> None:
    reference = REFERENCE.replace("forward(self, x)", "forward(self, x, z)").replace("50, 1010)", "50, 1011), z")
    reference = reference.replace("    return [", "    z = torch.zeros(3)\n    return [")
    code = kernel(extra="tl.store(x_ptr + count + tl.arange(0, 2), 1.1)").replace(
        "forward(self, x)", "forward(self, x, z)"
    )
    for changes, outcome in (({}, "INCORRECT"), (LABEL, "CORRECT")):
        result = judge.evaluate(request(code, reference_code=reference, stress_inputs=False, **changes))
        assert result["outcome"] == outcome, result["message"]
        assert evidence(result) == "writes outside its tensors: 8 bytes behind the end of an input"
    changed = code.replace("x_ptr + count + tl", "x_ptr + tl")
    result = judge.evaluate(request(changed, reference_code=reference, stress_inputs=False, **LABEL))
    # On a GPU the first elements may also be read after they were changed.
    assert result["incorrect"]["kind"] in ("input mutated", "values")


def test_a_wrong_output_comes_before_a_write_outside(judge: Judge) -> None:
    result = judged(judge, kernel(beyond=2, end="y = y + 1"))
    assert result["incorrect"]["kind"] == "values"
    assert result["incorrect"]["trial"] == 0


# The first call


def test_the_first_call_must_be_right(judge: Judge) -> None:
    result = judged(judge, kernel(end="y = y + 1 if self.calls == 1 else y"))
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["trial"] == -2
    assert result["incorrect"]["kind"] == "values"
    assert result["message"].endswith("out of tolerance (the first call)")
    assert result["correctness"]["passed_trials"] == result["correctness"]["total_trials"] == 2


def test_the_first_call_must_leave_its_inputs_as_they_are(judge: Judge) -> None:
    result = judged(judge, kernel(end="x[0, 0] = x[0, 0] + 1 if self.calls == 1 else x[0, 0]"))
    assert (result["incorrect"]["kind"], result["incorrect"]["trial"]) == ("input mutated", -2)


def test_a_tuner_that_runs_every_configuration_on_the_output_is_found_out(judge: Judge) -> None:
    tuned = kernel(made="torch.zeros_like(x)").replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': size}) for size in (256, 1024)], ['count'])\n@triton.jit",
    )
    tuned = tuned.replace("tl.store(y_ptr + at, tl.maximum(x, 0.0)", "tl.atomic_add(y_ptr + at, tl.maximum(x, 0.0)")
    tuned = tuned.replace(", BLOCK=1024)", ")").replace("x.numel() + 0, 1024", "x.numel(), meta['BLOCK']")
    tuned = tuned.replace("relu[(triton", "relu[lambda meta: (triton")
    result = judged(judge, tuned)
    assert (result["outcome"], result["incorrect"]["trial"]) == ("INCORRECT", -2), result["message"]
    reset = tuned.replace("['count'])", "['count'], reset_to_zero=['y_ptr'])")
    assert judged(judge, reset)["outcome"] == "CORRECT"


TWO = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {made}
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.down(torch.relu(self.up(x))){wrong}

def get_inputs():
    return [torch.randn(8, 32)]
"""


@pytest.mark.parametrize(("wrong", "outcome"), [("", "CORRECT"), (" + (self.calls == 1)", "INCORRECT")])
def test_the_first_call_with_adopted_parameters_counts_as_well(judge: Judge, wrong: str, outcome: str) -> None:
    up, down = "self.up = nn.Linear(32, 48)", "self.down = nn.Linear(48, 32)"
    reference = TWO.format(name="Model", made=f"{up}; {down}", wrong="")
    code = TWO.format(name="ModelNew", made=f"{down}; {up}", wrong=wrong)
    result = judge.evaluate(request(code, reference_code=reference, backend="torch", stress_inputs=True))
    assert result["outcome"] == outcome, result["message"]
    assert "S29" in {finding["id"] for finding in result["findings"]}
    if wrong:
        assert result["incorrect"]["trial"] == -2


# A repeated call


def test_the_same_inputs_give_the_same_bytes(judge: Judge) -> None:
    assert judged(judge, kernel())["correctness"]["deterministic"] is True


def test_bytes_that_differ_are_a_label(judge: Judge) -> None:
    made = "self.own = getattr(self, 'own', None) or torch.Generator(x.device).manual_seed(5)"
    end = "y *= 1 + 1e-6 * torch.rand(y.shape, generator=self.own, device=y.device)"
    result = judged(judge, kernel(body=made, end=end))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["deterministic"] is False


def test_bytes_that_differ_are_wrong_where_that_is_asked_for(judge: Judge) -> None:
    made = "self.own = getattr(self, 'own', None) or torch.Generator(x.device).manual_seed(5)"
    end = "y *= 1 + 1e-6 * torch.rand(y.shape, generator=self.own, device=y.device)"
    result = judged(judge, kernel(body=made, end=end), require_deterministic=True)
    assert result["outcome"] == "INCORRECT"
    assert (result["incorrect"]["kind"], result["incorrect"]["trial"]) == ("not deterministic", -3)
    assert judged(judge, kernel(), require_deterministic=True)["outcome"] == "CORRECT"


def test_random_numbers_under_the_calls_seed_are_the_same_again(judge: Judge) -> None:
    result = judged(judge, kernel(end="y *= 1 + 1e-6 * torch.rand_like(y)"))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["deterministic"] is True


def test_a_repeated_call_must_be_right(judge: Judge) -> None:
    """Calls 2 and 3 are the trials, call 4 has guard zones, and call 5 is the same without them."""
    result = judged(judge, kernel(end="y = y + 1 if self.calls > 3 else y"))
    assert result["outcome"] == "INCORRECT"
    assert result["incorrect"]["trial"] == -3
    assert result["message"].endswith("(a repeated call)")
    assert result["correctness"]["deterministic"] is False


@pytest.mark.parametrize(
    "end",
    [
        "y.resize_(50, 1011); y.resize_(50, 1010)",  # memory with zones cannot be resized
        "y = y + 1 if self.calls == 4 else y",  # whatever the cause is
        "raise ValueError if self.calls == 4 else None",
    ],
)
def test_what_fails_with_guard_zones_only_changes_no_verdict(judge: Judge, end: str) -> None:
    if end.startswith("raise"):
        end = "assert self.calls != 4"
    result = judged(judge, kernel(end=end))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["deterministic"] is True
    assert not result["findings"] or evidence(result) == ""


def test_inputs_that_are_changed_in_place_are_given_again(judge: Judge) -> None:
    reference = REFERENCE.replace("torch.relu(x)", "x.relu_()")
    code = kernel(made="x")
    result = judge.evaluate(request(code, reference_code=reference, stress_inputs=False))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["deterministic"] is True


def test_whoever_is_right_writes_nothing_outside(judge: Judge) -> None:
    result = judge.evaluate(request(candidate(), stress_inputs=True))
    assert result["outcome"] == "CORRECT"
    assert evidence(result) == ""


def test_the_first_of_several_fixed_cases_must_be_right_at_once(judge: Judge) -> None:
    case = '{{"inputs": [torch.arange({0}.0)], "expected": 2 * torch.arange({0}.0), "name": "{1}"}}'
    cases = f"import torch\n\ndef get_cases():\n    return [{case.format(8, 'small')}, {case.format(900, 'large')}]\n"
    code = "calls = []\n\ndef f(x):\n    calls.append(1)\n    return 2 * x + (len(calls) == {wrong})\n"
    fixed = {
        "toolkit": "kernel_simple",
        "backend": "torch",
        "entry_point": "f",
        "reference_code": "",
        "cases_code": cases,
    }
    result = judge.evaluate(request(code.format(wrong=1), **fixed))
    assert (result["outcome"], result["incorrect"]["trial"]) == ("INCORRECT", -2), result["message"]
    assert "workload small (1 of 2)" in result["message"]
    result = judge.evaluate(request(code.format(wrong=0), **fixed))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["correctness"]["deterministic"] is True


# Repetition where the judge has not kept the inputs


class _Scripted:
    """A candidate whose calls leave these fingerprints; None raises."""

    def __init__(self, *answers: int | None) -> None:
        self.spec = judge_harness.spec("", reference_code=REFERENCE)
        self.device = open_device("cpu:0")
        self.record = Record()
        self.answers = list(answers)
        self.calls: list[tuple[bool, int]] = []

    async def call(self, current: Trial, *, guarded: bool) -> Called:
        self.calls.append((guarded, current.inputs.master.numel()))
        if self.answers[0] is None:
            self.answers.pop(0)
            raise Finished(pb.EvalResult(outcome=pb.EvalResult.RUNTIME_ERROR))
        return Called(None, [], 0, 0.1)

    async def fingerprint(self, prints: object) -> int | None:
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "calls", "deterministic"),
    [((5, 5), 2, True), ((5, 6, 5), 3, True), ((5, 6, 6), 3, False), ((5, None, 5), 3, True)],
)
async def test_answers_to_inputs_that_are_gone_are_compared_with_each_other(
    answers: tuple[int | None, ...], calls: int, deterministic: bool
) -> None:
    async def begin(spec: ProblemSpec, seed: int, within: int | None) -> LocalProblem:
        return build_local(spec, scripted.device, seed)

    scripted: Any = _Scripted(*answers)
    problems = Problems(scripted.device, Lease(set()), begin)
    built = await problems.get(scripted.spec, None)
    last = built.prepare(scripted.spec, scripted.device, 0).outline()
    checked: Any = Checked(last, Fingerprint(scripted.device), 99)
    await repetition.repeat(scripted, built, checked, problems)
    assert [guarded for guarded, _ in scripted.calls] == [False, True, False][:calls]
    assert len({size for _, size in scripted.calls}) == 1
    assert scripted.calls[0][1] > 0
    assert scripted.record.deterministic is deterministic
