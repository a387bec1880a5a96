"""The pool: what it asks the zygote for, and that nothing is left of a runner that nobody waits for any more."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import select
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest

from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.runners.handle import Runner, RunnerStartError
from kerneldyno.evaluator.judge.runners.pool import Pool
from kerneldyno.evaluator.shared import wire

pytestmark = pytest.mark.pure

KILLED = {"signal": 9, "exit_code": None, "killed": True, "out_of_memory": False, "peak_memory_bytes": 0, "logs": ""}


@pytest.fixture
def made_and_zygote() -> Iterator[tuple[Pool, socket.socket]]:
    """A pool, and the zygote's end of its socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Pool(ours, CpuDevice(), "cpu:0", spares=1, memory_bytes=1 << 30), theirs


async def asked(zygote: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    """Return what the pool asks for, and the runner's and the warden's end of the sockets."""
    received = await asyncio.to_thread(wire.receive, zygote)
    assert received is not None
    frame, descriptors = received
    for shared in descriptors[2:]:
        os.close(shared)
    return frame, [socket.socket(fileno=descriptor) for descriptor in descriptors[:2]]


@pytest.mark.parametrize("early", [True, False])
async def test_a_birth_that_nobody_waits_for_any_more_is_ended(
    made_and_zygote: tuple[Pool, socket.socket], early: bool
) -> None:
    made, zygote = made_and_zygote
    birth = asyncio.create_task(made.spawn())
    _, (channel, control) = await asked(zygote)
    if not early:
        await asyncio.sleep(0.1)  # until the pool listens to both sockets
    birth.cancel()
    order = await asyncio.to_thread(wire.receive, control)
    if order is not None:  # otherwise its sockets are closed, which means the same
        assert order[0] == {"op": "kill"}
        wire.send(control, {"op": "exit", **KILLED})
    with pytest.raises(asyncio.CancelledError):
        await birth
    assert made.runners == set()
    with channel, control:
        assert await asyncio.to_thread(channel.recv, 1) == b""


@pytest.mark.parametrize(("role", "nodes"), [("runner", ["nvidia0"]), ("rehearsal", [])])
async def test_only_runners_can_open_the_device(
    made_and_zygote: tuple[Pool, socket.socket], role: str, nodes: list[str]
) -> None:
    made, zygote = made_and_zygote
    made.walls = dataclasses.replace(made.walls, gpu_nodes=("nvidia0",))
    birth = asyncio.create_task(made.spawn(role=role))
    order, ends = await asked(zygote)
    assert (order["role"], order["walls"]["gpu_nodes"]) == (role, nodes)
    birth.cancel()
    for end in ends:
        end.close()
    with pytest.raises(asyncio.CancelledError):
        await birth


async def test_who_is_cancelled_while_a_runner_is_ended_leaves_nothing(
    made_and_zygote: tuple[Pool, socket.socket],
) -> None:
    made, zygote = made_and_zygote
    birth = asyncio.create_task(made.spawn())
    _, (channel, control) = await asked(zygote)
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    runner = await birth
    end = asyncio.create_task(made.discard(runner))
    for order in ("baseline", "kill"):
        assert await asyncio.to_thread(wire.receive, control) == ({"op": order}, [])
    end.cancel()
    with pytest.raises(asyncio.CancelledError):
        await end
    assert made.runners == set()
    with channel, control:
        assert await asyncio.to_thread(channel.recv, 1) == b""
        wire.send(control, {"op": "exit", **KILLED})  # the warden kills it even if nobody waits
        assert await asyncio.to_thread(control.recv, 1) == b""


@contextlib.asynccontextmanager
async def warm(made: Pool, zygote: socket.socket) -> AsyncIterator[tuple[Runner, socket.socket]]:
    """Provide a warm runner, and its warden's end of the control socket; it is ended at the end."""
    birth = asyncio.create_task(made.spawn())
    _, (channel, control) = await asked(zygote)
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    runner = await birth
    assert await asyncio.to_thread(wire.receive, control) == ({"op": "baseline"}, [])
    with channel, control:
        yield runner, control
        end = asyncio.create_task(made.discard(runner))
        if not runner.has_ended:
            wire.send(control, {"op": "exit", **KILLED})
        await end


async def test_a_warden_is_told_of_more_memory_and_its_answer_awaited(
    made_and_zygote: tuple[Pool, socket.socket],
) -> None:
    async with warm(*made_and_zygote) as (runner, control):
        await runner.allow(1 << 30)  # as it was born
        raised = asyncio.create_task(runner.allow(5 << 30))
        assert await asyncio.to_thread(wire.receive, control) == ({"op": "allow", "memory_bytes": 5 << 30}, [])
        await asyncio.sleep(0.01)
        assert not raised.done()
        wire.send(control, {"op": "allowed", "failed": ""})
        await raised
        assert runner.memory_bytes == 5 << 30
        await runner.allow(4 << 30)
        control.setblocking(False)
        with pytest.raises(BlockingIOError):
            control.recv(1)
        control.setblocking(True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"op": "allowed", "failed": "Permission denied"}, "Permission denied"), ({"op": "exit", **KILLED}, "ended")],
)
async def test_a_limit_that_cannot_be_raised_is_no_fault_of_the_candidate(
    made_and_zygote: tuple[Pool, socket.socket], answer: dict[str, Any], why: str
) -> None:
    async with warm(*made_and_zygote) as (runner, control):
        raised = asyncio.create_task(runner.allow(5 << 30))
        await asyncio.to_thread(wire.receive, control)
        wire.send(control, answer)
        with pytest.raises(RunnerStartError, match=f"could not be raised: .*{why}"):
            await raised
        assert runner.memory_bytes == 1 << 30


async def test_a_greeting_without_a_pace_is_none(made_and_zygote: tuple[Pool, socket.socket]) -> None:
    made, zygote = made_and_zygote
    birth = asyncio.create_task(made.spawn())
    _, (channel, control) = await asked(zygote)
    wire.send(channel, {"ok": "ready"})
    assert await asyncio.to_thread(wire.receive, control) == ({"op": "kill"}, [])
    wire.send(control, {"op": "exit", **KILLED})
    with pytest.raises(RunnerStartError, match="unexpected greeting"):
        await birth
    assert made.runners == set()
    channel.close()
    control.close()


async def test_only_runners_with_full_queues_get_that_environment(
    made_and_zygote: tuple[Pool, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "quick_start_environment", MappingProxyType({"QUEUES": "1"}))
    monkeypatch.setattr(CpuDevice, "full_queues_environment", MappingProxyType({"LONG": "4x"}))
    made, zygote = made_and_zygote
    made.environment = {"OTHER": "2"}
    for full_queues, environment in ((True, {"OTHER": "2", "LONG": "4x"}), (False, {"OTHER": "2", "QUEUES": "1"})):
        birth = asyncio.create_task(made.spawn(full_queues=full_queues))
        frame, (channel, control) = await asked(zygote)
        assert frame["environment"] == environment
        wire.send(channel, {"ok": "ready", "pace": 0.0})
        runner = await birth
        assert made.runners == {runner}
        wire.send(control, {"op": "exit", **KILLED})
        await made.discard(runner)
        channel.close()
        control.close()


async def test_a_runner_made_when_it_is_wanted_may_fail_to_start_once(
    made_and_zygote: tuple[Pool, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "quick_start_environment", MappingProxyType({"QUEUES": "1"}))
    made, zygote = made_and_zygote
    taking = asyncio.create_task(made.take(full_queues=True))
    _, (channel, control) = await asked(zygote)
    wire.send(control, {"op": "exit", **KILLED})
    channel.close()
    control.close()
    _, (channel, control) = await asked(zygote)
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    runner = await taking
    assert runner.has_candidate
    assert made.runners == {runner}
    wire.send(control, {"op": "exit", **KILLED})
    await made.discard(runner)
    channel.close()
    control.close()


class Paced:
    """A pool whose ready spares have these paces."""

    def __init__(self, made: Pool, paces: list[float]) -> None:
        self.pool = made
        self._ends: list[socket.socket] = []
        for pace in paces:
            made._ready.put_nowait(self.runner(pace))

    def runner(self, pace: float) -> Runner:
        (channel, other), (control, another) = socket.socketpair(), socket.socketpair()
        self._ends += [channel, other, control, another]
        runner = Runner(channel, control, [])
        runner.pace = pace
        return runner

    @property
    def ready(self) -> list[float]:
        queue = self.pool._ready
        spares = [queue.get_nowait() for _ in range(queue.qsize())]
        for spare in spares:
            queue.put_nowait(spare)
        return [spare.pace for spare in spares if isinstance(spare, Runner)]

    @property
    def wanted(self) -> int:
        return self.pool._wanted._value

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def paced(made_and_zygote: tuple[Pool, socket.socket]) -> Iterator[Callable[[list[float]], Paced]]:
    """Return a function that gives the pool ready spares of these paces."""
    made: list[Paced] = []

    def make(paces: list[float]) -> Paced:
        made.append(Paced(made_and_zygote[0], paces))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def test_processes_fall_into_classes_by_their_pace(paced: Callable[[list[float]], Paced]) -> None:
    spares = paced([])
    classes = [spares.pool.class_of(spares.runner(pace)) for pace in (1.97, 2.10, 2.00, 2.08, 1.96, 2.13)]
    assert classes == [1, 2, 1, 2, 1, 2]
    assert spares.pool.class_of(spares.runner(0.0)) == 0  # a device on which processes do not differ


async def test_a_candidate_gets_a_spare_of_the_class_that_its_reference_has(
    paced: Callable[[list[float]], Paced],
) -> None:
    spares = paced([1.97, 2.10, 1.98])
    quick, slow = (spares.pool.class_of(spares.runner(pace)) for pace in (1.97, 2.10))
    assert quick != slow
    assert (await spares.pool.take(full_queues=False, classes={slow})).pace == 2.10
    assert sorted(spares.ready) == [1.97, 1.98]
    assert (await spares.pool.take(full_queues=False, classes={slow})).pace in (1.97, 1.98)  # instead of waiting
    assert spares.wanted == 2  # for each taken spare a new one is started


async def test_a_reference_gets_the_ready_runner_that_is_like_the_candidates(
    paced: Callable[[list[float]], Paced],
) -> None:
    spares = paced([2.10, 2.11, 1.97])
    found = await spares.pool.take_like(spares.runner(1.98), full_queues=False)
    assert found.pace == 1.97
    assert sorted(spares.ready) == [2.10, 2.11]
    assert spares.wanted == 1


async def test_what_a_search_for_a_reference_runner_leaves_over_goes_back(
    paced: Callable[[list[float]], Paced],
) -> None:
    spares = paced([2.10, 2.11])
    search = asyncio.create_task(spares.pool.take_like(spares.runner(1.98), full_queues=False))
    await asyncio.sleep(0.05)  # until it waits
    assert spares.ready == []
    spares.pool._ready.put_nowait(spares.runner(1.97))
    assert (await search).pace == 1.97
    assert sorted(spares.ready) == [2.10, 2.11]
    # Three new spares are started for these three. The next two taken ones are not replaced, so that no more stand
    # ready than before.
    assert spares.wanted == 3
    await spares.pool.take(full_queues=False)
    await spares.pool.take(full_queues=False)
    assert spares.wanted == 3


async def test_a_search_keeps_no_spare_from_those_who_wait(paced: Callable[[list[float]], Paced]) -> None:
    spares = paced([])
    search = asyncio.create_task(spares.pool.take_like(spares.runner(1.98), full_queues=False))
    lanes = [asyncio.create_task(spares.pool.take(full_queues=False)) for _ in range(2)]
    await asyncio.sleep(0.05)  # until they wait
    for pace in (2.10, 2.11, 1.97):  # the search is the first in line
        spares.pool._ready.put_nowait(spares.runner(pace))
        await asyncio.sleep(0.01)
    assert [(await lane).pace for lane in lanes] == [2.10, 2.11]
    assert (await search).pace == 1.97
    assert spares.wanted == 3


async def test_a_reference_does_not_wait_for_ever_for_a_runner_like_the_candidates(
    paced: Callable[[list[float]], Paced],
) -> None:
    spares = paced([2.10] * 12)
    assert (await spares.pool.take_like(spares.runner(1.98), full_queues=False)).pace == 2.10
    assert len(spares.ready) == 11


class SlowStarts(CpuDevice):
    """A device on which runners with full queues start slowly, so that the pool keeps none of them ready."""

    quick_start_environment = MappingProxyType({"QUEUES": "1"})


async def born(zygote: socket.socket, pace: float) -> list[socket.socket]:
    """Answer the pool's next order with a warm runner of this pace."""
    _, ends = await asked(zygote)
    wire.send(ends[0], {"ok": "ready", "pace": pace})
    return ends


async def test_runners_that_a_search_leaves_over_serve_the_next_ones() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Pool(ours, SlowStarts(), "cpu:0", spares=0, memory_bytes=1 << 30)
        ends = []
        first = asyncio.create_task(made.take(full_queues=True))
        ends += await born(theirs, 100.0)
        search = asyncio.create_task(made.take_like(await first, full_queues=True))
        for pace in (110.0, 111.0, 101.0):  # two of the other class, then its own
            ends += await born(theirs, pace)
        assert (await search).pace == 101.0
        # Nothing more is started: the two that were left over serve.
        second = await made.take(full_queues=True, classes={2})
        assert (await made.take_like(second, full_queues=True)).pace == 111.0
        assert made.spawns == 4
        for end in ends:
            end.close()
        await made.close()
        assert not made.runners


class SlowToOpen(CpuDevice):
    """A device that two spares of a host may open concurrently."""

    openings = 2


@pytest.mark.parametrize(("devices", "at_once"), [(1, 2), (2, 1), (8, 1)])
async def test_spares_open_the_device_in_turn(devices: int, at_once: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Pool(ours, SlowToOpen(), "cpu:0", spares=3, memory_bytes=1 << 30, devices=devices)
        births = [asyncio.create_task(made.spawn(full_queues=False)) for _ in range(3)]
        ends = [(await asked(theirs))[1] for _ in births]
        for channel, _ in ends:
            wire.send(channel, {"ok": "forked"})
        opened = 0
        while opened < 3:
            await asyncio.sleep(0.05)
            told = [channel for channel, _ in ends if _is_readable(channel)]
            assert len(told) == min(at_once, 3 - opened)
            for channel in told:
                assert await asyncio.to_thread(wire.receive, channel) == ({"op": "open"}, [])
                wire.send(channel, {"ok": "ready", "pace": 1.0})
                opened += 1
        assert {(await birth).pace for birth in births} == {1.0}
        for channel, control in ends:
            channel.close()
            control.close()
        await made.close()


async def test_no_spare_opens_the_device_during_a_timing_and_who_is_waited_for_opens_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Pool(ours, SlowToOpen(), "cpu:0", spares=0, memory_bytes=1 << 30, devices=2)
        timed = asyncio.create_task(made.spawn())
        _, (first, first_control) = await asked(theirs)
        wire.send(first, {"ok": "forked"})
        assert await asyncio.to_thread(wire.receive, first) == ({"op": "open"}, [])
        wire.send(first, {"ok": "ready", "pace": 0.0})
        spare = asyncio.create_task(made.spawn(full_queues=False))
        _, (second, second_control) = await asked(theirs)
        stopped = asyncio.create_task(asyncio.to_thread(_stop, second_control))
        async with made.lease.exclusive(await timed):
            wire.send(second, {"ok": "forked"})
            await asyncio.sleep(0.05)
            assert not _is_readable(second)
        await stopped
        assert await asyncio.to_thread(wire.receive, second) == ({"op": "open"}, [])
        wire.send(second, {"ok": "ready", "pace": 0.0})
        await spare
        for end in (first, first_control, second, second_control):
            end.close()
        await made.close()


async def test_a_birth_that_fails_while_it_opens_the_device_lets_the_next_one_open_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Pool(ours, SlowToOpen(), "cpu:0", spares=0, memory_bytes=1 << 30, devices=2)
        births = [asyncio.create_task(made.spawn(full_queues=False)) for _ in range(2)]
        ends = [(await asked(theirs))[1] for _ in births]
        for channel, _ in ends:
            wire.send(channel, {"ok": "forked"})
        assert await asyncio.to_thread(wire.receive, ends[0][0]) == ({"op": "open"}, [])
        ends[0][0].close()
        wire.send(ends[0][1], {"op": "exit", **KILLED})
        assert await asyncio.to_thread(wire.receive, ends[1][0]) == ({"op": "open"}, [])
        wire.send(ends[1][0], {"ok": "ready", "pace": 0.0})
        with pytest.raises(RunnerStartError):
            await births[0]
        await births[1]
        for end in (ends[0][1], *ends[1]):
            end.close()
        await made.close()


def _stop(control: socket.socket) -> None:
    assert wire.receive(control) == ({"op": "stop"}, [])
    wire.send(control, {"op": "stopped"})


def _is_readable(channel: socket.socket) -> bool:
    return bool(select.select([channel], [], [], 0)[0])
