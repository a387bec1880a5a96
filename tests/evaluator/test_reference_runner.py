"""References in real runners of their own, which are kept for later candidates, and blamed for their own failures."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil
import pytest

from tests.evaluator.judge_harness import DEVICE, REFERENCE, Judge, limits, request

pytestmark = pytest.mark.alone

TWIN = REFERENCE.replace("class Model(", "class ModelNew(")
#: True where a reference is timed: in a runner, and not in the judge.
#: True where a reference is timed, and not in the process that answers for its problem.
IN_RUNNER = "'runner/problem.py' not in ''.join(__import__('traceback').format_stack())"


def timed(judge: Judge, reference: str = REFERENCE, kernel: str = TWIN, **changes: Any) -> dict[str, Any]:
    asked = {"backend": "torch", "reference_code": reference, "run_performance": True, "num_perf_trials": 40}
    return judge.evaluate(request(kernel, **{**asked, **changes}))


def when_timed(statement: str) -> str:
    """Return a reference that executes `statement` only where it is timed."""
    return REFERENCE.replace(
        "    def forward(self, x):\n", f"    def forward(self, x):\n        if {IN_RUNNER}:\n            {statement}\n"
    )


def runners(judge: Judge) -> int:
    while True:
        frame = judge._next()
        if frame["op"] == "stats":
            return int(frame["runners"])


def test_the_reference_is_timed_in_a_process_like_the_candidates(judge: Judge) -> None:
    slow = when_timed("__import__('time').sleep(0.01)")
    result = timed(judge, slow)
    assert result["outcome"] == "CORRECT", result["message"]
    assert 0.01 < result["reference_timing"]["median_seconds"] < 0.02
    assert result["speedup"] > 5


def test_one_reference_runner_serves_all_candidates_of_its_problem(judge: Judge) -> None:
    first = timed(judge)
    assert first["outcome"] == "CORRECT", first["message"]
    before = psutil.Process(judge.zygote.pid).children(recursive=True)
    for _ in range(3):
        assert timed(judge)["outcome"] == "CORRECT"
    kept = [process for process in before if process.is_running()]
    assert len(kept) >= 3  # at least the outer half, the warden and the runner of the reference


def test_a_reference_that_only_fails_where_it_is_timed_is_to_blame_itself(judge: Judge) -> None:
    result = timed(judge, when_timed("raise ValueError('not here')"))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "not here" in result["message"]
    assert 'File "reference.py"' in result["reference_error"]["traceback"]
    assert timed(judge)["outcome"] == "CORRECT"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("__import__('os')._exit(7)", "ended its process"),
        ("__import__('os').kill(__import__('os').getpid(), 11)", "ended its process"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "ended its process"),
        ("__import__('os').closerange(3, 64)", "ended its process"),
    ],
)
def test_a_reference_that_ends_its_own_runner_is_to_blame_itself(judge: Judge, statement: str, said: str) -> None:
    result = timed(judge, when_timed(statement))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert said in result["message"]
    assert timed(judge)["outcome"] == "CORRECT"


def test_a_reference_that_hangs_once_it_is_timed_is_given_up(judge: Judge) -> None:
    counted = "self.calls = getattr(self, 'calls', 0) + 1\n            while self.calls > 4: pass"
    begin = time.monotonic()
    result = timed(judge, when_timed(counted), **limits(timing=2))
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "longer than 2 s" in result["message"]
    assert time.monotonic() - begin < 60
    assert timed(judge)["outcome"] == "CORRECT"


def test_a_reference_runner_that_is_killed_is_made_anew(judge: Judge) -> None:
    assert timed(judge)["outcome"] == "CORRECT"
    for process in psutil.Process(judge.zygote.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended with its parent
            process.kill()
    deadline = time.monotonic() + 60
    while (result := timed(judge))["outcome"] == "INFRASTRUCTURE_ERROR":
        assert result["infrastructure_error"]["retryable"]
        assert time.monotonic() < deadline
    assert result["outcome"] == "CORRECT", result["message"]


def test_a_candidate_that_fails_while_it_is_timed_leaves_the_reference_usable(judge: Judge) -> None:
    assert timed(judge)["outcome"] == "CORRECT"
    wrong_when_timed = TWIN.replace(
        "        return torch.relu",
        "        self.calls = getattr(self, 'calls', 0) + 1\n"
        "        return torch.zeros_like(x) if self.calls > 12 else torch.relu",
    )
    crashing = TWIN.replace(
        "        return torch.relu",
        "        self.calls = getattr(self, 'calls', 0) + 1\n"
        "        __import__('os')._exit(3) if self.calls > 12 else None\n        return torch.relu",
    )
    for source, outcome in ((wrong_when_timed, "INCORRECT"), (crashing, "RUNTIME_ERROR")):
        assert timed(judge, kernel=source)["outcome"] == outcome
        after = timed(judge)
        assert after["outcome"] == "CORRECT", after["message"]
        assert 0.3 < after["speedup"] < 3


def test_no_more_than_a_few_are_kept_and_those_not_for_long(judge: Judge) -> None:
    for number in range(5):
        result = timed(judge, REFERENCE + f"\n# {number}\n", num_perf_trials=5)
        assert result["outcome"] == "CORRECT", result["message"]
    spares, kept = 1, {"cpu:0": 3}.get(DEVICE, 16)
    assert runners(judge) <= spares + 1 + kept
