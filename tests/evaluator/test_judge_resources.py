"""A real judge on times, on the memory of many processes, and on many threads.

These depend on the whole machine, so the tests run alone.
"""

from __future__ import annotations

import pytest

from kerneldyno.evaluator.walls.limits import MAX_TASKS
from tests.evaluator.judge_harness import DEVICE, Judge, candidate, request

pytestmark = pytest.mark.alone


def test_timing_reports_both_sides_and_checks_timed_outputs(judge: Judge) -> None:
    result = judge.evaluate(request(candidate(), run_performance=True))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0
    assert result["speedup_interval"]["low"] <= result["speedup"] <= result["speedup_interval"]["high"]
    for side in ("candidate_timing", "reference_timing"):
        assert 0 < result[side]["min_seconds"] <= result[side]["median_seconds"] <= result[side]["max_seconds"]
    assert result["correctness"]["timed_outputs_checked"] >= 4
    assert [span["stage"] for span in result["stages"]][-1] == "STAGE_TIMING"
    roof = result["roofline"]
    assert int(roof["bytes"]) == 4 * (2 * 32 * 128 + 128 * 128 + 128)
    assert int(roof["flops"]) == 2 * 32 * 128 * 128
    assert min(roof["bytes_per_second"], roof["flops_per_second"]) > 1e6
    assert roof["share"] == pytest.approx(roof["least_seconds"] / result["candidate_timing"]["median_seconds"])
    assert "T21" not in [finding["id"] for finding in result["findings"]]


def test_clock_of_the_candidate_is_not_believed(judge: Judge) -> None:
    cheat = candidate(
        prologue="import time\nreal = time.perf_counter\ntime.perf_counter = lambda: real() / 1000\n",
        body="time.sleep(0.02)",
    )
    result = judge.evaluate(request(cheat, run_performance=True))
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["candidate_timing"]["median_seconds"] >= 0.018
    if DEVICE == "cpu:0":
        assert result["candidate_timing"]["clock"] == "CLOCK_JUDGE"
        assert [finding["id"] for finding in result["findings"]] == ["T01", "B11"]


#: Starts processes that fill `each` MiB of their own memory, and then fills `parent` MiB itself.
FAMILY = """
import os, time
for _ in range({children}):
    if os.fork() == 0:
        mine = b"x" * ({each} << 20)
        time.sleep(20)
        os._exit(0)
ours = b"x" * ({parent} << 20)
time.sleep(2)
"""


@pytest.mark.parametrize(
    ("children", "each", "parent", "outcome"), [(100, 0, 400, "CORRECT"), (60, 32, 0, "OUT_OF_MEMORY")]
)
def test_memory_of_many_processes_is_what_they_have_of_their_own(
    children: int, each: int, parent: int, outcome: str
) -> None:
    with Judge("--memory-bytes", str(1 << 30)) as judge:
        family = candidate(prologue=FAMILY.format(children=children, each=each, parent=parent))
        result = judge.evaluate(request(family))
        assert result["outcome"] == outcome, result["message"]


#: Starts `count` threads with small stacks, which live for some seconds.
CROWD = """
import threading, time
threading.stack_size(1 << 16)
leave = threading.Event()
for _ in range({count}):
    threading.Thread(target=leave.wait, args=({seconds},), daemon=True).start()
print("started")
time.sleep({seconds})
"""


def test_two_candidates_have_the_threads_that_each_may_have(judge: Judge) -> None:
    code = candidate(prologue=CROWD.format(count=MAX_TASKS - 60, seconds=2))
    results = judge.evaluate_together(request(code), request(code))
    assert [result["outcome"] for result in results] == ["CORRECT"] * 2, [result["message"] for result in results]
    assert all("started" in result["logs"] for result in results)


def test_the_limit_of_threads_is_named(judge: Judge) -> None:
    crowd = CROWD.format(count=MAX_TASKS + 10, seconds=2)
    result = judge.evaluate(request(candidate(prologue=crowd)))
    assert result["outcome"] == "COMPILE_ERROR"
    assert f"{MAX_TASKS} processes and threads in all" in result["message"]
