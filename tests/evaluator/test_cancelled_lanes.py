"""Lanes that are cancelled at any moment: nobody else waits for what they had, and every other verdict is right."""

from __future__ import annotations

import random

import pytest

from tests.evaluator.judge_harness import Judge, request

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
    def forward(self, x):
        return torch.tanh(self.layer(x) * {factor})
def get_inputs():
    return [torch.rand(64, 32)]
"""
EVALUATIONS, LANES = 120, 6


def submit(judge: Judge, rng: random.Random) -> tuple[str, str]:
    """Submit a right or a wrong candidate of one of two problems. Return its token and its outcome."""
    reference = REFERENCE.format(factor=rng.choice((1, 2)))
    candidate, expected = reference.replace("class Model(", "class ModelNew("), "CORRECT"
    if rng.random() < 0.3:
        candidate, expected = candidate.replace("torch.tanh(", "1.001 * torch.tanh("), "INCORRECT"
    asked = {"backend": "torch", "num_correct_trials": 5, "stress_inputs": True, "run_performance": True}
    policy = "PROVENANCE_POLICY_LABEL"
    return judge.submit(request(candidate, reference_code=reference, provenance_policy=policy, **asked)), expected


@pytest.mark.timeout(150)  # about ten seconds, if no lane stands still
def test_lanes_that_are_cancelled_at_any_moment_hold_nobody_up() -> None:
    rng, cancelled = random.Random(5), 0
    with Judge("--lanes", str(LANES), "--spares", str(LANES)) as judge:
        expected = dict(submit(judge, rng) for _ in range(LANES))
        for left in reversed(range(EVALUATIONS)):
            while True:
                frame = judge._next()
                token = str(frame.get("attempt"))
                if frame["op"] == "result":
                    break
                # An attempt passes through eight stages, and some more if it waits.
                if frame["op"] == "stage" and expected[token] != "INFRASTRUCTURE_ERROR" and rng.random() < 0.1:
                    judge.cancel(token)
                    expected[token] = "INFRASTRUCTURE_ERROR"
                    cancelled += 1
            outcome, wanted = frame["result"]["outcome"], expected.pop(token)
            # A cancellation may come when the verdict is on its way.
            assert outcome == wanted or wanted == "INFRASTRUCTURE_ERROR", frame["result"]
            if left >= LANES:
                expected.update([submit(judge, rng)])
        assert not expected
    assert EVALUATIONS / 5 < cancelled < EVALUATIONS
