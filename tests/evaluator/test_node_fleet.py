"""The node's side of FleetService, against a real service on a real socket: lease, Work stream and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from kerneldyno.evaluator.server.fleet import FleetLink
from kerneldyno.rpc import errors, validation
from kerneldyno.v1 import evaluation_pb2 as eval_pb
from kerneldyno.v1 import fleet_service_pb2 as pb
from tests.evaluator.fleet_harness import Fleet, assignment, proxy_to, serving
from tests.evaluator.node_harness import (
    PASS,
    Clock,
    RunningNode,
    cell_settings,
    processes,
    request,
    running_node,
)
from tests.waiting import eventually

CORRECT = eval_pb.EvalResult.CORRECT


@asynccontextmanager
async def linked(b: RunningNode, port: int, **options: object) -> AsyncIterator[FleetLink]:
    link = FleetLink(b.node, f"127.0.0.1:{port}", address="127.0.0.1:1", instance_id="i1", **options)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(link.run())
        try:
            yield link
        finally:
            task.cancel()


async def at_work(fleet: Fleet, streams: int = 1) -> None:
    """Wait until the node has opened `streams` streams, and has reported on the newest one what it holds."""
    await eventually(lambda: len(fleet.streams) >= streams and bool(fleet.stream.messages))


# The lease


async def test_the_node_says_what_it_is_and_has() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, running_node(labels={"rack": "a"}) as b, linked(b, port) as link:
        attempt = b.start("hang", scheduled=True)
        b.start("hang", token="of-a-direct-caller")
        await eventually(lambda: bool(fleet.heard) and list(fleet.last.attempt_tokens) == [attempt.token])
        said = fleet.last
        assert (said.node_id, said.instance_id, said.address) == ("node", "i1", "127.0.0.1:1")
        assert said.state == pb.NODE_STATE_SERVING
        assert [(d.name, d.kind, d.lanes, d.ready) for d in said.devices] == [("cpu:0", "cpu", 2, True)]
        assert {"triton", "cuda", "torch"} <= set(said.backends)
        assert {"kernelbench", "kernel_simple"} <= set(said.toolkits)
        assert (said.environment.torch_version, said.environment.device) == ("0.fake", "")
        assert (said.profiling, dict(said.labels)) == (False, {"rack": "a"})
        # The scheduler hears from the node a moment before the node gets its answer.
        await eventually(lambda: link.connected)


async def test_a_node_obeys_cancels_and_desired_state() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        running, finished = b.start("hang", scheduled=True), b.start(*PASS, scheduled=True)
        await eventually(lambda: finished.done)
        fleet.answer.cancel_attempt_tokens.extend([running.token, finished.token, "unknown"])
        fleet.answer.desired_state = pb.NODE_STATE_DRAINING
        await eventually(lambda: running.done and not b.node.attempts.tokens() and not fleet.last.attempt_tokens)
        await eventually(lambda: b.node.drained_by_scheduler)
        # The node itself is not draining: when told to serve again, it serves.
        assert fleet.last.state == pb.NODE_STATE_SERVING
        with pytest.raises(errors.ShuttingDownError):
            b.start(*PASS)
        fleet.answer.desired_state = pb.NODE_STATE_SERVING
        await eventually(lambda: not b.node.drained_by_scheduler)
        b.start(*PASS)


async def test_news_are_told_at_once() -> None:
    """With a period of an hour, the node still reports a restarting device, its return and a drain within moments."""
    fleet = Fleet()
    fleet.answer.next_synchronize.FromSeconds(3600)
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await eventually(lambda: bool(fleet.heard))
        processes("--control-fd")[0].kill()
        await eventually(lambda: any(not said.devices[0].ready for said in fleet.heard))
        await eventually(lambda: fleet.last.devices[0].ready)
        b.node.drain()
        await eventually(lambda: fleet.last.state == pb.NODE_STATE_DRAINING)


async def test_a_scheduler_may_be_absent_come_go_and_return(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fleet, clock = Fleet(), Clock()

    def events(name: str) -> int:
        return sum(f"event={name}" in record.getMessage() for record in caplog.records)

    async with serving(fleet) as port:
        pass
    async with running_node() as b, linked(b, port, clock=clock) as link:
        await eventually(lambda: events("synchronize_failed") == 1)
        assert not link.connected
        for leases in (1, 2):
            fleet.heard.clear()
            async with serving(fleet, port):
                await eventually(lambda: link.connected and bool(fleet.heard))
            attempt = b.start(*PASS, scheduled=True)
            await b.node.until_idle()
            assert attempt in b.node.attempts.held()
            clock.now += 11
            assert not link.connected
            await eventually(lambda leases=leases: events("lease_lost") == leases)
        assert events("registered") == 2
        assert events("synchronize_failed") <= 4


async def test_a_refused_node_keeps_asking() -> None:
    """A restarted node is refused until the lease of its earlier process ends."""
    fleet = Fleet()
    fleet.refuse = grpc.StatusCode.ALREADY_EXISTS
    async with serving(fleet) as port, running_node() as b, linked(b, port) as link:
        await eventually(lambda: len(fleet.heard) > 2)
        assert not link.connected
        assert not fleet.streams, "only a registered node asks for work"
        fleet.refuse = None
        await at_work(fleet)
        assert link.connected


# Work


async def test_attempts_come_and_their_snapshots_and_results_go(tmp_path: Path) -> None:
    gate, fleet = tmp_path / "gate", Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await at_work(fleet)
        first = fleet.stream.messages[0]
        assert (first.node_id, first.instance_id, list(first.held_attempt_tokens)) == ("node", "i1", [])
        fleet.stream.assign("t1", "stage STAGE_CHECKING", f"await-file {gate}", "result INCORRECT", labels={"k": "v"})
        await eventually(lambda: any(event.stage == eval_pb.STAGE_CHECKING for event in fleet.stream.events))
        assert {(event.attempt_token, event.device) for event in fleet.stream.events} == {("t1", "cpu:0")}
        await eventually(lambda: list(fleet.last.attempt_tokens) == ["t1"])
        gate.touch()
        await eventually(lambda: bool(fleet.stream.results("t1")))
        (result,) = fleet.stream.results("t1")
        assert result.outcome == eval_pb.EvalResult.INCORRECT
        assert (result.environment.node_id, result.labels["k"]) == ("node", "v")
        assert not any(message.node_id for message in fleet.stream.messages[1:])
        assert b.node.attempts.holds("t1"), "nobody has acknowledged it"
        fleet.stream.say(acknowledged_attempt_tokens=["t1", "unknown"])
        await eventually(lambda: not b.node.attempts.holds("t1") and not fleet.last.attempt_tokens)


async def test_an_attempt_that_is_assigned_again_is_the_same_one(tmp_path: Path) -> None:
    runs, fleet = tmp_path / "runs", Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await at_work(fleet)
        for _ in range(2):
            fleet.stream.assign("t1", f"touch {runs}", "sleep 0.2", "result CORRECT")
        await eventually(lambda: bool(fleet.stream.results("t1")))
        fleet.stream.assign("t1", "result INCORRECT")  # it has finished, but the token is still in use
        await eventually(lambda: len(fleet.stream.results("t1")) == 2)
        assert [result.outcome for result in fleet.stream.results("t1")] == [CORRECT, CORRECT]
        assert runs.read_text().split() == ["t1"]


async def test_what_is_cancelled_dies_without_a_result() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, running_node(cell_settings(lanes=1)) as b, linked(b, port):
        await at_work(fleet)
        for token in ("running", "waiting"):
            fleet.stream.assign(token, "hang")
        await eventually(lambda: {event.attempt_token for event in fleet.stream.events} == {"running", "waiting"})
        # While an attempt is being killed, it is not held, and its token cannot be assigned again. Both orders are in
        # one message, because killing takes no time.
        again = assignment("running", "hang")
        fleet.stream.say(cancel_attempt_tokens=["running", "waiting", "unknown"], assignments=[again])
        await eventually(lambda: "running" in fleet.stream.refusals)
        assert fleet.stream.refusals["running"].why == pb.AttemptRefusal.WHY_FULL
        await eventually(lambda: not b.node.attempts.tokens())
        fleet.stream.assign("next", *PASS)
        await eventually(lambda: bool(fleet.stream.results("next")))
        assert not any(event.HasField("result") for event in fleet.stream.events if event.attempt_token != "next")


async def test_a_cancel_by_a_person_is_a_result_for_the_scheduler() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await at_work(fleet)
        fleet.stream.assign("t1", "hang")
        await eventually(lambda: b.node.attempts.holds("t1"))
        b.node.cancel("t1")
        await eventually(lambda: bool(fleet.stream.results("t1")))
        assert fleet.stream.results("t1")[0].infrastructure_error.cause == "CANCELLED"
        assert b.node.attempts.holds("t1")


async def test_refusals_say_why_and_when_to_come_back() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, running_node(cell_settings(lanes=1)) as b, linked(b, port):
        await at_work(fleet)
        stream = fleet.stream
        gpu = eval_pb.DeviceSelector(kind="cuda")
        older = assignment("older", *PASS)
        older.request.timeouts.ClearField("load_timeout")
        older.request.ClearField("num_perf_trials")
        stream.say(
            assignments=[
                *(assignment(token, "hang") for token in ("a", "b", "full")),
                assignment("gpu", *PASS, device=gpu),
                assignment("backend", *PASS, backend="cobol"),
                assignment("toolkit", *PASS, toolkit="abacus"),
                assignment("profile", *PASS, enable_profiling=True),
                assignment("own", *PASS, provenance_policy=eval_pb.PROVENANCE_POLICY_REQUIRE_OWN_KERNELS),
                assignment("t" * 101, *PASS),
                assignment("", *PASS),
                older,
            ]
        )
        await eventually(lambda: len(stream.refusals) == 9)
        b.node.drain()
        stream.assign("late", *PASS)
        await eventually(lambda: "late" in stream.refusals)
        whys = {token: pb.AttemptRefusal.Why.Name(refusal.why) for token, refusal in stream.refusals.items()}
        assert whys == {
            "full": "WHY_FULL",
            "gpu": "WHY_NO_MATCHING_DEVICE",
            "backend": "WHY_NO_MATCHING_DEVICE",
            "toolkit": "WHY_NO_MATCHING_DEVICE",
            "profile": "WHY_NO_MATCHING_DEVICE",
            "own": "WHY_NO_MATCHING_DEVICE",
            "t" * 101: "WHY_INVALID",
            "": "WHY_INVALID",
            "older": "WHY_INVALID",
            "late": "WHY_DRAINING",
        }
        for token in ("full", "late"):
            assert stream.refusals[token].retry_delay.ToMilliseconds() == 1000
        for token, text in (
            ("backend", "this node does not have the backend 'cobol'"),
            ("toolkit", "this node does not have the toolkit 'abacus'"),
            ("profile", "no device of this node can profile"),
            ("t" * 101, "the attempt's token has 101 characters"),
            ("", "the attempt's token has 0 characters"),
            (
                "older",
                "it has no num_perf_trials, timeouts.load_timeout; the scheduler and this node have different versions",
            ),
        ):
            assert text in stream.refusals[token].detail
        # With violations the client would hear that its request is INVALID; so the scheduler tries other nodes.
        assert not any(refusal.violations for refusal in stream.refusals.values())
        assert {attempt.token for attempt in b.node.attempts.held()} == {"a", "b"}


async def test_what_the_scheduler_has_validated_is_not_validated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    validated, validate = [], validation.validate
    filled, effective = [], validation.effective
    monkeypatch.setattr(validation, "validate", lambda *a, **k: validated.append(a) or validate(*a, **k))
    monkeypatch.setattr(validation, "effective", lambda *a: filled.append(a) or effective(*a))
    fleet = Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await at_work(fleet)
        fleet.stream.assign("t1", *PASS)
        await eventually(lambda: bool(fleet.stream.results("t1")))
        assert (fleet.stream.results("t1")[0].outcome, validated, filled) == (CORRECT, [], [])
        direct = b.node.submit("t2", request(*PASS))
        await eventually(lambda: direct.done)
        assert (len(validated), len(filled)) == (1, 1)
        with pytest.raises(errors.InvalidRequestError) as refused:
            b.node.submit("t" * 101, request(*PASS, num_correct_trials=-1))
        assert [each.field for each in refused.value.violations] == ["num_correct_trials", "attempt_token"]


async def test_results_that_need_many_messages_arrive_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that need many messages all arrive, each once."""
    monkeypatch.setattr("kerneldyno.evaluator.server.work._MESSAGE_BYTES", 1)
    fleet = Fleet()
    async with serving(fleet) as port, running_node(cell_settings(lanes=4)) as b:
        tokens = [b.start(*PASS, scheduled=True).token for _ in range(8)]
        await b.node.until_idle()
        async with linked(b, port):
            await eventually(lambda: bool(fleet.streams) and all(fleet.stream.results(token) for token in tokens))
        stream = fleet.stream
        assert list(stream.messages[0].held_attempt_tokens) == tokens
        assert [len(message.events) for message in stream.messages] == [1] * 8
        assert {event.stage for event in stream.events} == {eval_pb.STAGE_DONE}


# Streams and schedulers that end


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.INTERNAL]
)
async def test_a_stream_that_ends_is_opened_again_and_results_are_sent_until_acknowledged(
    code: grpc.StatusCode, tmp_path: Path
) -> None:
    gate, fleet = tmp_path / "gate", Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await at_work(fleet)
        fleet.stream.assign("done", *PASS)
        fleet.stream.assign("acknowledged", *PASS)
        await eventually(lambda: bool(fleet.stream.results("done") and fleet.stream.results("acknowledged")))
        fleet.stream.assign("running", "stage STAGE_CHECKING", f"await-file {gate}", "result CORRECT")
        fleet.stream.say(acknowledged_attempt_tokens=["acknowledged"])
        await eventually(lambda: not b.node.attempts.holds("acknowledged") and b.node.attempts.holds("running"))
        fleet.stream.end(code)
        await at_work(fleet, streams=2)
        first = fleet.stream.messages[0]
        assert (first.node_id, first.instance_id) == ("node", "i1")
        assert sorted(first.held_attempt_tokens) == ["done", "running"]
        assert {event.attempt_token: event.HasField("result") for event in first.events} == {
            "done": True,
            "running": False,
        }
        gate.touch()
        await eventually(lambda: bool(fleet.stream.results("running")))
        fleet.stream.say(acknowledged_attempt_tokens=["done", "running"])
        await eventually(lambda: b.node.attempts.tokens() == [])


async def test_a_scheduler_that_does_not_know_the_node_is_told_again_before_the_next_stream() -> None:
    fleet = Fleet()
    fleet.answer.next_synchronize.FromSeconds(3600)
    fleet.refuse_work = grpc.StatusCode.FAILED_PRECONDITION
    async with serving(fleet) as port, running_node() as b, linked(b, port):
        await eventually(lambda: len(fleet.heard) > 3)
        fleet.refuse_work = None
        await at_work(fleet)


async def test_a_scheduler_that_is_restarted_finds_everything(tmp_path: Path) -> None:
    """The node notices only a broken stream: no attempt runs twice, and no result is lost."""
    runs, gate, former, later = tmp_path / "runs", tmp_path / "gate", Fleet(), Fleet()
    async with running_node() as b:
        async with serving(former) as port:
            link = linked(b, port)
            await link.__aenter__()
            await at_work(former)
            former.stream.assign("running", f"touch {runs}", f"await-file {gate}", "result CORRECT")
            former.stream.assign("done", f"touch {runs}", "result CORRECT")
            await eventually(lambda: bool(former.stream.results("done")) and b.node.attempts.holds("running"))
        try:
            gate.touch()  # it finishes while no scheduler runs
            await b.node.until_idle()
            async with serving(later, port):
                await at_work(later)
                later.stream.assign("done", f"touch {runs}", "result CORRECT")  # without effect
                await eventually(lambda: bool(later.stream.results("running") and later.stream.results("done")))
                # Acknowledge only now: the node forgets an acknowledged token, and would run it again.
                later.stream.say(acknowledged_attempt_tokens=["done", "running"])
                await eventually(lambda: b.node.attempts.tokens() == [])
            assert sorted(runs.read_text().split()) == ["done", "running"]
        finally:
            await link.__aexit__(None, None, None)


async def test_a_scheduler_that_falls_silent_and_speaks_again_has_missed_nothing() -> None:
    """Connections stay open and transfer nothing, as if the scheduler were stopped by SIGSTOP."""
    fleet = Fleet()
    async with serving(fleet) as port, proxy_to(port) as proxy, running_node() as b, linked(b, proxy.port):
        await at_work(fleet)
        fleet.stream.assign("t1", "sleep 0.5", "result CORRECT")
        await eventually(lambda: b.node.attempts.holds("t1"))
        proxy.hold()
        await eventually(lambda: b.node.attempts.get("t1").done)
        await asyncio.sleep(0.5)
        assert not any(stream.results("t1") for stream in fleet.streams)
        proxy.release()
        await eventually(lambda: any(stream.results("t1") for stream in fleet.streams))
        assert b.node.attempts.get("t1").runs == 1


async def test_a_connection_whose_other_end_is_gone_is_given_up_with_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing reports the failure: packets are lost in both directions. New connections work."""
    fleet = Fleet()
    fleet.answer.lease.FromSeconds(1)
    async with serving(fleet) as port, proxy_to(port) as proxy, running_node() as b, linked(b, proxy.port) as link:
        await at_work(fleet)
        fleet.stream.assign("t1", *PASS)
        await eventually(lambda: b.node.attempts.holds("t1"))
        proxy.swallow()
        await at_work(fleet, streams=2)
        await eventually(lambda: bool(fleet.stream.results("t1")) and link.connected)
        assert any("event=lease_lost" in record.getMessage() for record in caplog.records)


async def test_a_connection_that_is_reset_in_the_middle_of_many_results_loses_none() -> None:
    fleet = Fleet()
    cell, tokens = cell_settings(lanes=8), [f"t{index}" for index in range(12)]
    async with serving(fleet) as port, proxy_to(port) as proxy, running_node(cell) as b, linked(b, proxy.port):
        await at_work(fleet)
        for token in tokens:
            fleet.stream.assign(token, "sleep 0.3", "result CORRECT")
        await eventually(lambda: len(b.node.attempts.held()) == len(tokens))
        await eventually(lambda: any(attempt.done for attempt in b.node.attempts.held()))
        proxy.reset()
        await at_work(fleet, streams=2)
        proxy.reset()
        await at_work(fleet, streams=3)
        await eventually(lambda: all(any(stream.results(token) for stream in fleet.streams) for token in tokens))
        assert all(attempt.runs == 1 for attempt in b.node.attempts.held())


async def test_closing_sends_what_there_is_and_ends_the_stream_well() -> None:
    fleet = Fleet()
    async with serving(fleet) as port, running_node() as b, linked(b, port) as link:
        await at_work(fleet)
        fleet.stream.assign("t1", *PASS)
        await eventually(lambda: b.node.attempts.holds("t1") and b.node.attempts.get("t1").done)
        async with asyncio.timeout(10):
            await link.close()
        assert fleet.stream.half_closed
        assert len(fleet.stream.results("t1")) >= 1
        heard = len(fleet.heard)
        await eventually(lambda: len(fleet.heard) > heard + 2)  # the lease continues
        assert len(fleet.streams) == 1
