"""Processes that die, clients that leave, and services that are told to stop: no work is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from kerneldyno.client import AsyncClient, DeadlineExceededError, EvalRequest, EvalResult
from kerneldyno.rpc.jsonio import request_to_json
from tests.e2e.e2e_harness import (
    Service,
    descendants,
    evaluator,
    is_alive,
    judge_of,
    kill,
    metric,
    orphans,
    outcome,
    page,
    request,
    scheduler,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow

LANES = 6
OPTIONS = ("--lanes", str(LANES), "--spares", "2")
HANG = "while True: time.sleep(0.1)"


@pytest.fixture(scope="module")
def strays() -> set[psutil.Process]:
    """Orphans that existed before these tests."""
    return orphans()


@pytest.fixture(scope="module")
def cluster(strays: set[psutil.Process]) -> Iterator[tuple[Service, Service]]:
    """A scheduler and an evaluator that these tests may disturb if they work again afterwards."""
    with scheduler() as front, evaluator(front.address, *OPTIONS) as back:
        yield front, back
        assert front.process.poll() is None
        assert back.process.poll() is None


def running(back: Service, **labels: str) -> float:
    return metric(page(back.ready["metrics"]), "kerneldyno_running_attempts", **labels)


def waiting(front: Service) -> float:
    text = page(front.ready["metrics"])
    return metric(text, "kerneldyno_queue_depth") + metric(text, "kerneldyno_running")


def killed(back: Service) -> float:
    return metric(page(back.ready["metrics"]), "kerneldyno_runner_exits_total", how="killed")


async def collect(address: str, requests: list[EvalRequest], timeout: float = 90) -> dict[str, EvalResult]:
    async with AsyncClient(address) as client:
        results = [result async for result in client.evaluate(requests, timeout=timeout)]
    assert len(results) == len({result.id for result in results}) == len(requests)
    return {result.id: result for result in results}


# Processes that are killed


async def test_the_evaluator_is_killed_and_another_takes_over(strays: set[psutil.Process]) -> None:
    with scheduler() as front:
        with evaluator(front.address, *OPTIONS) as first:
            work = asyncio.create_task(
                collect(front.address, [request(f"e{number}", "time.sleep(4)") for number in range(6)])
            )
            await eventually(lambda: running(first) == 6, 30, "six running attempts")
            most = 2 + 2 * 6  # a zygote and a judge; for each attempt a runner and at least one warden
            await eventually(lambda: len(descendants(first.process.pid)) >= most, 10, "six runners")
            family = descendants(first.process.pid)
            kill(first.process)
            first.process.wait(10)
            await eventually(lambda: not any(map(is_alive, family)), 20, "the end of the killed evaluator's family")
            assert not work.done()
            with evaluator(front.address, *OPTIONS) as second:
                results = await work
                assert {outcome(result) for result in results.values()} == {"CORRECT"}
                assert all(result.attempts >= 2 for result in results.values()), "the first attempts were lost"
                assert metric(page(second.ready["metrics"]), "kerneldyno_attempts_total", outcome="CORRECT") == 6
        text = page(front.ready["metrics"])
        assert metric(text, "kerneldyno_outcomes_total", outcome="CORRECT") == 6
        assert metric(text, "kerneldyno_retries_total") >= 6
    await eventually(
        lambda: not orphans() - strays, 30, "a machine without orphans"
    )  # other tests may have orphans for a moment


async def test_a_judge_is_killed_and_nobody_notices(cluster: tuple[Service, Service]) -> None:
    front, back = cluster
    before = metric(page(back.ready["metrics"]), "kerneldyno_judge_restarts_total", cause="judge")
    await collect(front.address, [request("j")])  # from now on the judge knows the problem
    work = asyncio.create_task(
        collect(front.address, [request(f"j{number}", "time.sleep(4)") for number in range(LANES)])
    )
    await eventually(lambda: running(back) == LANES, 30, "running attempts")
    await asyncio.sleep(2.5)  # if a judge dies while a reference executes, the reference is blamed
    family = descendants(back.process.pid)
    judge = judge_of(back.process.pid)
    kill(judge)
    results = await work
    assert {outcome(result) for result in results.values()} == {"CORRECT"}
    assert judge_of(back.process.pid) != judge
    text = page(back.ready["metrics"])
    assert metric(text, "kerneldyno_judge_restarts_total", cause="judge") == before + 1
    await eventually(lambda: not any(map(is_alive, family)), 20, "the end of the old judge's runners")


# Clients and time limits

_LEAVER = """
import asyncio, json, sys
from kerneldyno.client import AsyncClient
from kerneldyno.rpc.jsonio import request_from_json

async def main():
    requests = [request_from_json(data) for data in json.loads(sys.stdin.read())]
    async with AsyncClient(sys.argv[1], client_id="leaver") as client:
        async for result in client.evaluate(requests):
            print(result.id, flush=True)

asyncio.run(main())
"""


async def test_a_client_killed_in_mid_stream_disturbs_nobody(cluster: tuple[Service, Service]) -> None:
    """The work that it submitted is finished, and a client with its client id can get the results."""
    front, _ = cluster
    theirs = [request(f"l{number}", "time.sleep(0.3)") for number in range(24)]
    leaver = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _LEAVER, front.address), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert leaver.stdin is not None
    assert leaver.stdout is not None
    leaver.stdin.write(json.dumps([request_to_json(one) for one in theirs]).encode())
    leaver.stdin.write_eof()
    assert await asyncio.wait_for(leaver.stdout.readline(), 60)
    ours = asyncio.create_task(
        collect(front.address, [request(f"m{number}", "time.sleep(0.2)") for number in range(12)])
    )
    await asyncio.sleep(0.3)
    assert leaver.returncode is None, "it is in mid-stream"
    leaver.kill()
    await leaver.wait()
    assert {outcome(result) for result in (await ours).values()} == {"CORRECT"}
    await eventually(lambda: waiting(front) == 0, 60, "an idle scheduler")
    async with AsyncClient(front.address, client_id="leaver") as client:
        assert {outcome((await client.get(one.id)).result) for one in theirs} == {"CORRECT"}


@pytest.mark.alone  # these limits hold only on a machine that does nothing else
async def test_a_caller_that_goes_away_frees_the_lane(cluster: tuple[Service, Service]) -> None:
    front, back = cluster
    await collect(front.address, [request("known", "pass")])  # the problem's process is born, and stays
    await eventually(lambda: running(back) == 0, what="an idle evaluator")
    await asyncio.sleep(2)  # judges report their counters every second
    before = killed(back)
    async with AsyncClient(front.address, client_id="caller") as client:
        call = asyncio.create_task(client.evaluate_once(request("gone", HANG)))
        # It has a runner only once its problem has answered.
        await eventually(lambda: running(back, stage="compiling") == 1, what="a candidate that is called")
        family = {process.pid for process in descendants(back.process.pid)}
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: running(back) == 0, 5, "a free lane")
        result = (await client.get("gone")).result
    assert (outcome(result), result.infrastructure_error.cause) == ("INFRASTRUCTURE_ERROR", "CANCELLED")
    await eventually(lambda: killed(back) == before + 1, what="the count of the killed runner")
    await eventually(lambda: len(descendants(back.process.pid)) <= len(family), what="as many processes as before")


@pytest.mark.alone  # these limits hold only on a machine that does nothing else
async def test_a_hanging_candidate_meets_its_limit(cluster: tuple[Service, Service]) -> None:
    front, back = cluster
    begin = time.monotonic()
    results = await collect(
        front.address,
        [
            request("late-load", timeouts={"load_timeout": 1}, kernel_code="import time\ntime.sleep(999)\n"),
            request("late-call", "while True: pass", timeouts={"compile_timeout": 1}),
            request("deaf", "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(999)", timeouts=1),
            request("fine"),
        ],
    )
    assert time.monotonic() - begin < 15
    assert outcome(results.pop("fine")) == "CORRECT"
    assert {id: (outcome(one), one.timeout.stage) for id, one in results.items()} == {
        "late-load": ("TIMEOUT", "load"),
        "late-call": ("TIMEOUT", "compile"),
        "deaf": ("TIMEOUT", "compile"),
    }
    await eventually(lambda: running(back) == 0, 5, "free lanes")


@pytest.mark.alone  # these limits hold only on a machine that does nothing else
async def test_the_deadline_of_a_call_ends_its_evaluation(cluster: tuple[Service, Service]) -> None:
    front, back = cluster
    async with AsyncClient(front.address, client_id="hurried") as client:
        begin = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            await client.evaluate_once(request("once", HANG), timeout=1.5)
        (result,) = [result async for result in client.evaluate([request("stream", HANG)], timeout=1.5)]
        assert time.monotonic() - begin < 8
        assert (outcome(result), result.infrastructure_error.cause) == ("INFRASTRUCTURE_ERROR", "DEADLINE_EXCEEDED")
        await eventually(lambda: running(back) == 0, 5, "free lanes")
        found = (await client.get("once")).result
        assert (outcome(found), found.infrastructure_error.cause) == ("INFRASTRUCTURE_ERROR", "DEADLINE_EXCEEDED")


# Services that are told to stop


def is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ended connections may still be in TIME_WAIT
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
        return True


@pytest.mark.alone  # these limits hold only on a machine that does nothing else
async def test_sigterm_ends_both_in_order_and_leaves_nothing(strays: set[psutil.Process]) -> None:
    with scheduler() as front, evaluator(front.address, "--lanes", "2") as back:
        family = descendants(front.process.pid) + descendants(back.process.pid)
        addresses = [front.address, back.address, front.ready["metrics"], back.ready["metrics"]]
        assert not any(map(is_free, addresses))
        work = asyncio.create_task(
            collect(front.address, [request(f"s{number}", "time.sleep(1)") for number in range(2)])
        )
        await eventually(lambda: running(back) == 2, 30, "running attempts")
        family += descendants(back.process.pid)
        back.process.send_signal(signal.SIGTERM)
        results = await work
        assert {(outcome(one), one.attempts) for one in results.values()} == {("CORRECT", 1)}, "what runs is finished"
        assert await asyncio.to_thread(back.exit_status, 10) == 0
        front.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(front.exit_status, 10) == 0
        await eventually(lambda: not any(map(is_alive, family)), 5, "the end of every process")
        assert all(map(is_free, addresses))
    await eventually(lambda: not orphans() - strays, 10, "a machine without orphans")
