"""Tests of feedback and rewards for candidates that a real judge has run, one for each way to end."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.rewards.extraction import extract
from kerneldyno.rewards.feedback import feedback
from kerneldyno.rewards.presets import PRESETS
from kerneldyno.rewards.scoring import anomalous, score
from kerneldyno.rpc.jsonio import result_from_json
from kerneldyno.v1.evaluation_pb2 import EvalResult
from tests.evaluator.judge_harness import REFERENCE, Judge, candidate, limits, request


def judged(judge: Judge, source: str, **changes: Any) -> EvalResult:
    """Extract `source` from a model's response, and return the judge's verdict on it."""
    found = extract(f"I would try this:\n\n```python\n{source}```\n", "Model")
    assert found.kernel_code == source
    return result_from_json(judge.evaluate(request(found.kernel_code, **changes)))


#: Source, changes of the request, outcome, texts that feedback of 256 characters must contain.
CASES: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
    "wrong values": (
        candidate(floor="0.01"),
        {},
        "INCORRECT",
        ("INCORRECT: ", "elements of output are out of tolerance", "Worst element: output at ["),
    ),
    "wrong shape": (candidate(end="y = y.t().contiguous()"), {}, "INCORRECT", ("shape (128, 32), expected (32, 128)",)),
    "syntax error": ("def f(:\n    pass\n", {}, "COMPILE_ERROR", ("SyntaxError", "Your line 1: def f(:")),
    "raises": (
        candidate(body="raise ValueError('boom')"),
        {},
        "RUNTIME_ERROR",
        ("ValueError: boom", "Your line ", ": raise ValueError('boom')"),
    ),
    "segfault": (candidate(body="import ctypes; ctypes.string_at(0)"), {}, "RUNTIME_ERROR", ("signal 11 (SIGSEGV)",)),
    "exits": (candidate(body="import os; os._exit(3)"), {}, "RUNTIME_ERROR", ("exited with status 3",)),
    "hangs": (candidate(body="while True: pass"), limits(compile=1), "TIMEOUT", ("the first call", "longer than 1 s")),
    "out of memory": (candidate(body="raise MemoryError()"), {}, "OUT_OF_MEMORY", ("host memory ran out in compile",)),
    "decoy": (
        candidate(body="return torch.relu(self.linear(x)) * self.scale"),
        {},
        "REJECTED",
        ("REJECTED: S19, no triton kernel was launched",),
    ),
    "no class": ("x = 1\n", {}, "INVALID", ("INVALID: your program defines no ModelNew",)),
    "broken reference": (
        candidate(),
        {"reference_code": REFERENCE.replace("[torch.randn(32, 128)]", "[1 / 0]")},
        "REFERENCE_ERROR",
        ("no verdict",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_model_is_told(judge: Judge, name: str) -> None:
    source, changes, outcome, said = CASES[name]
    verdict = judged(judge, source, **changes)
    assert EvalResult.Outcome.Name(verdict.outcome) == outcome, verdict.message
    text = feedback(verdict, limit=256)
    assert len(text) <= 256
    assert all(part in text for part in said), text
    assert len(feedback(verdict, limit=2000)) <= 2000
    reward, parts = score(verdict, PRESETS["tiers"])
    expected = {"INCORRECT": -0.3, "REJECTED": -1.0, "REFERENCE_ERROR": None}.get(outcome, -0.5)
    assert (reward, parts.fixed) == (expected, expected or 0.0)


def test_a_right_one(judge: Judge) -> None:
    verdict = judged(judge, candidate(), run_performance=True)
    assert verdict.outcome == EvalResult.CORRECT, verdict.message
    text = feedback(verdict, limit=256)
    assert text.startswith(
        f"CORRECT: {verdict.speedup:.2g}" if verdict.speedup < 0.095 else f"CORRECT: {verdict.speedup:.2f}x"
    )
    assert "x the reference's speed (95% interval " in text
    assert ("Triton was interpreted" in text) == verdict.environment.triton_interpreter
    for name, spec in PRESETS.items():
        reward, parts = score(verdict, spec)
        assert reward is not None, name
        assert parts.paid_coverage == 0, "the CPU does not profile"
        if not anomalous(verdict, spec):
            assert parts.paid_speedup == verdict.speedup


def test_what_it_printed_and_the_inputs_it_saw_are_not_told(judge: Judge) -> None:
    body = "print('inputs', x.flatten()[:8].tolist(), flush=True); raise ValueError('stop')"
    verdict = judged(judge, candidate(body=body))
    assert "inputs [" in verdict.logs
    numbers = verdict.logs.split("[")[1].split("]")[0].split(", ")
    text = feedback(verdict, limit=20_000)
    assert not any(number in text for number in numbers)
    assert "inputs [" in feedback(verdict, limit=20_000, logs=True)
