"""Modules that need more host memory than every candidate may use, with a real judge: limits, waits and refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evaluator.host_memory_problems import MIB, table
from tests.evaluator.judge_harness import Judge, candidate, request
from tests.waiting import wait_until

pytestmark = pytest.mark.alone

#: What every candidate may use, and the parameters of the modules, which are more. One evaluation that is not timed
#: needs more than twice the parameters beyond the base on the CPU, so that there is room for one and not for two.
BASE, LARGE = 128 * MIB, 300
ROOM_FOR_ONE = 3 * LARGE * MIB


@pytest.fixture(scope="module")
def small_base() -> Iterator[Judge]:
    with Judge("--memory-bytes", str(BASE)) as judge:
        yield judge


@pytest.fixture(scope="module")
def room_for_one() -> Iterator[Judge]:
    with Judge("--memory-bytes", str(BASE), "--host-bytes", str(ROOM_FOR_ONE)) as judge:
        yield judge


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"run_performance": True},
        {"made": "torch.randn(rows, 1024) * 0.5"},  # a second tensor of this size exists for a moment
        {"made": "torch.zeros(rows, 1024)", "stress_inputs": True},  # all of it is replaced by secret values
    ],
    ids=["checked", "timed", "initialised", "secret"],
)
def test_a_module_that_is_larger_than_the_base_is_judged(small_base: Judge, changes: dict[str, object]) -> None:
    result = small_base.evaluate(table(LARGE, **changes))
    assert result["outcome"] == "CORRECT", result["message"]
    limit = int(result["memory_use"]["candidate_host_limit_bytes"])
    assert BASE + 2 * LARGE * MIB < limit < BASE + 8 * LARGE * MIB


def test_a_candidate_of_a_small_problem_has_the_base_also_after_a_large_one(small_base: Judge) -> None:
    assert small_base.evaluate(table(LARGE))["outcome"] == "CORRECT"
    result = small_base.evaluate(request(candidate(prologue=f"held = torch.ones({LARGE * MIB // 4})")))
    assert result["outcome"] == "OUT_OF_MEMORY", result["message"]
    evidence = result["out_of_memory"]
    assert (evidence["memory"], evidence["limit_bytes"]) == ("host", str(BASE))


#: Processes that each have memory of their own; together it is more than the raised limit, and less than the system has.
FAMILY = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        mine = b"x" * (40 << 20)
        time.sleep(20)
        os._exit(0)
time.sleep(10)
"""


@pytest.mark.parametrize(
    "prologue",
    ["held = torch.ones(400 << 20)", "held = bytearray(1600 << 20)", FAMILY],
    ids=["torch", "python", "family"],
)
def test_more_than_the_raised_limit_is_ended_and_the_limit_is_named(small_base: Judge, prologue: str) -> None:
    result = small_base.evaluate(table(LARGE, prologue=prologue))
    assert result["outcome"] == "OUT_OF_MEMORY", result["message"]
    evidence, use = result["out_of_memory"], result["memory_use"]
    assert evidence["memory"] == "host"
    assert evidence["limit_bytes"] == use["candidate_host_limit_bytes"]
    limit = int(evidence["limit_bytes"])
    assert limit > BASE + 2 * LARGE * MIB
    if prologue == FAMILY:
        assert f"used more than {limit // MIB} MiB of host memory" in result["message"]
    assert small_base.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_what_the_host_cannot_hold_is_refused_with_its_bytes() -> None:
    room = LARGE * MIB
    with Judge("--memory-bytes", str(BASE), "--host-bytes", str(room)) as judge:
        result = judge.evaluate(table(LARGE))
        assert result["outcome"] == "PROBLEM_TOO_LARGE", result["message"]
        evidence = result["problem_too_large"]
        assert (evidence["memory"], evidence["stage"]) == ("host", "judging")
        assert 2 * room < int(evidence["needed_bytes"]) < 3 * room
        assert evidence["device_bytes"] == str(room)
        assert f"of host memory or more; there are {room / (1 << 30):.2f} GiB" in result["message"]
        assert [span["stage"] for span in result["stages"]].count("STAGE_PREPARING") == 1, "it was tried once more"
        assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"


def test_two_at_once_with_room_for_one_are_judged_one_after_the_other(room_for_one: Judge) -> None:
    judge = room_for_one
    tokens = [judge.submit(table(LARGE)) for _ in range(2)]
    seen: list[tuple[str, str]] = []
    while sum(what in ("CORRECT", "other") for _, what in seen) < 2:
        frame = judge._next()
        if frame["op"] == "stage":
            seen.append((frame["attempt"], frame["stage"]))
        elif frame["op"] == "result":
            seen.append((frame["attempt"], frame["result"]["outcome"]))
    assert {(token, "CORRECT") for token in tokens} <= set(seen), seen
    (waiting,) = {attempt for attempt, what in seen if what == "STAGE_AWAITING_MEMORY"}
    (first,) = set(tokens) - {waiting}
    assert seen.index((first, "CORRECT")) < seen.index((waiting, "STAGE_LOADING"))


def test_a_small_one_does_not_wait_for_a_large_one(room_for_one: Judge) -> None:
    judge = room_for_one
    large = judge.submit(table(LARGE, prologue="import time\ntime.sleep(60)"))
    while judge.wait_for(large, "stage")["stage"] != "STAGE_LOADING":
        pass
    assert judge.evaluate(request(candidate()))["outcome"] == "CORRECT"
    judge.cancel(large)
    assert judge.wait_for(large, "result")["result"]["outcome"] == "INFRASTRUCTURE_ERROR"


def test_a_cancelled_one_gives_its_bytes_back(room_for_one: Judge) -> None:
    judge = room_for_one

    def admitted() -> int:
        judge.evaluate(request("not Python"))  # reads the judge's frames
        return int(judge.stats.get("host_memory_admitted_bytes", -1))

    large = judge.submit(table(LARGE, prologue="import time\ntime.sleep(60)"))
    while judge.wait_for(large, "stage")["stage"] != "STAGE_LOADING":
        pass
    wait_until(lambda: admitted() > 2 * LARGE * MIB)
    assert int(judge.stats["host_memory_room_bytes"]) == ROOM_FOR_ONE
    judge.cancel(large)
    assert judge.wait_for(large, "result")["result"]["infrastructure_error"]["cause"] == "CANCELLED"
    wait_until(lambda: admitted() == 0)
    assert judge.evaluate(table(LARGE))["outcome"] == "CORRECT"
