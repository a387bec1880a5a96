"""A runner may forge any answer: the judge survives, does not blame itself, and accepts no wrong candidate.

The fuzzer runs in its own process, because its runners are threads. `benchmarks/fuzz.py` sends more frames.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kerneldyno.evaluator.judge.runners.answers import read_burst, read_call
from kerneldyno.evaluator.judge.runners.handle import RunnerGarbled
from kerneldyno.evaluator.shared import wire
from tests import ROOT, sampling


@pytest.mark.timeout(430)
@pytest.mark.parametrize("seed", [0])
def test_no_forged_answer_breaks_the_judge_or_its_verdict(seed: int) -> None:
    frames = sampling.count(150, 60)
    command = [sys.executable, "-m", "tests.evaluator.channel_fuzzer", "--frames", str(frames), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    seen = dict(line.strip("| ").split(" | ", 1) for line in done.stdout.splitlines())
    assert int(seen["mutated frames"].split(",")[0]) >= frames
    assert "right: CORRECT" in seen["verdicts"]  # a judge that refuses all candidates would prove nothing
    left, growth = seen["judge's descriptors left open, growth of its memory"].removesuffix(" MiB").split(", ")
    # Arenas of a few candidates wait for the garbage collector, three of each; a leak has that for each of seventy.
    assert int(left) < 20
    assert int(growth) < 256


@pytest.mark.parametrize(
    "answer",
    [None, 1, {}, [], [0.1], ["0.1", 0.1], [True, 0.1], [None, 0.1], [float("nan"), 0.1], [float("inf"), 0.1],
     [10**400, 0.1], [-(10**400), 0.1], [-1e-9, 0.1], [1e300, 0.1], [[0.1], 0.1], [0.1, 0.1, 0.1]],
)  # fmt: skip
def test_forged_times_are_refused(answer: Any) -> None:
    with pytest.raises(RunnerGarbled):
        read_burst(answer, 2)


def test_no_time_is_zero() -> None:
    assert min(read_burst([0, 0.0, -0.0, 1], 4)) > 0


@pytest.mark.parametrize(
    "answer",
    [None, 1, "x", [], {}, {"structure": None, "specs": []}, {"structure": None, "specs": {}, "launches": None},
     {"structure": None, "specs": [], "launches": 1.0}, {"structure": None, "specs": [], "launches": True},
     {"structure": None, "specs": [["float32", [10**400], [1], True]], "launches": 1},
     {"structure": None, "specs": [["float32", [1] * 65, [1] * 65, True]], "launches": 1}],
)  # fmt: skip
def test_forged_descriptions_of_results_are_refused(answer: Any) -> None:
    with pytest.raises(RunnerGarbled):
        read_call(answer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"NaN",
        b"1" * 5000,
        b"[" * 500_000,
        b'{"a":' * 200_000,
    ],
)
def test_what_is_no_object_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.decode(body)
