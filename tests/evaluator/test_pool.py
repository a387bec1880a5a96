"""The pool: what it asks the zygote for, and that nothing is left of a birth that nobody waits for any more."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
from kerneldyno.evaluator import wire
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.handle import RunnerStartError
from kerneldyno.evaluator.judge.pool import Pool

KILLED = {"signal": 9, "exit_code": None, "killed": True, "out_of_memory": False, "peak_memory_bytes": 0, "logs": ""}


@pytest.fixture
def made_and_zygote() -> Iterator[tuple[Pool, socket.socket]]:
    """A pool, and the zygote's end of its socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Pool(ours, CpuDevice(), "cpu:0", spares=1, memory_bytes=1 << 30), theirs


async def asked(zygote: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    """What is asked for, and the runner's and the warden's end of its sockets."""
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
        await asyncio.sleep(0.1)  # until it listens to both
    birth.cancel()
    order = await asyncio.to_thread(wire.receive, control)
    if order is not None:  # else its sockets are closed, which says the same
        assert order[0] == {"op": "kill"}
        wire.send(control, {"op": "exit", **KILLED})
    with pytest.raises(asyncio.CancelledError):
        await birth
    assert made.runners == set()
    with channel, control:
        assert await asyncio.to_thread(channel.recv, 1) == b""


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
        wire.send(control, {"op": "exit", **KILLED})  # the warden has killed it, whether or not anybody waits for that
        assert await asyncio.to_thread(control.recv, 1) == b""


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


async def test_only_who_uses_no_streams_gets_a_runner_without_them(
    made_and_zygote: tuple[Pool, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "one_stream", MappingProxyType({"QUEUES": "1"}))
    made, zygote = made_and_zygote
    made.environment = {"OTHER": "2"}
    for streams, environment in ((True, {"OTHER": "2"}), (False, {"OTHER": "2", "QUEUES": "1"})):
        birth = asyncio.create_task(made.spawn(streams=streams))
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
    monkeypatch.setattr(CpuDevice, "one_stream", MappingProxyType({"QUEUES": "1"}))
    made, zygote = made_and_zygote
    taking = asyncio.create_task(made.take(streams=True))
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
