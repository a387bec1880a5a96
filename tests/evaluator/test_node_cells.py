"""A node with scripted judges in real processes: stages, lanes, cancellations, and all ways a judge can die."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from kerneldyno.evaluator.server.cell import CellFailedError
from kerneldyno.rpc import errors
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator.node_harness import PASS, Clock, cell_settings, processes, result_of, running_node
from tests.waiting import eventually

CORRECT = pb.EvalResult.CORRECT
INFRASTRUCTURE_ERROR = pb.EvalResult.INFRASTRUCTURE_ERROR
REFERENCE_ERROR = pb.EvalResult.REFERENCE_ERROR


async def test_an_attempt_goes_through_its_stages_and_keeps_what_the_node_knows() -> None:
    async with running_node() as b:
        stages = ("AWAITING_MEMORY", "PREPARING", "LOADING", "TIMING")
        steps = [step for stage in stages for step in (f"stage STAGE_{stage}", "sleep 0.1")]
        attempt = b.start(*steps, "result CORRECT", labels={"team": "a"})
        seen = []
        async with aclosing(b.node.watch(attempt)) as snapshots:
            async for snapshot in snapshots:
                seen.append((snapshot.stage, snapshot.device))
        assert seen == [
            (pb.STAGE_PREPARING, "cpu:0"),
            (pb.STAGE_AWAITING_MEMORY, "cpu:0"),
            (pb.STAGE_PREPARING, "cpu:0"),
            (pb.STAGE_LOADING, "cpu:0"),
            (pb.STAGE_TIMING, "cpu:0"),
            (pb.STAGE_DONE, "cpu:0"),
        ]
        result = attempt.snapshot.result
        assert result is not None
        assert (result.id, result.outcome, result.attempts, dict(result.labels)) == (
            *("request", CORRECT, 1),
            {"team": "a"},
        )
        assert result.environment.node_id == "node"
        assert result.HasField("finish_time")
        await eventually(lambda: b.sample("kerneldyno_runner_spawns_total", device="cpu:0") == 1)
        assert b.sample("kerneldyno_attempts_total", outcome="CORRECT") == 1
        assert b.sample("kerneldyno_stage_seconds_sum", stage="loading", outcome="CORRECT") == 0.25


async def test_a_late_watcher_gets_the_latest_snapshot_only() -> None:
    async with running_node() as b:
        attempt = b.start(*PASS)
        await eventually(lambda: attempt.done)
        assert [s.stage async for s in attempt.snapshots()] == [pb.STAGE_DONE]


async def test_attempts_beyond_the_lanes_wait_and_beyond_the_queue_are_refused(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with running_node(cell_settings(lanes=2)) as b:
        attempts = [b.start(f"await-file {gate}", "result CORRECT") for _ in range(4)]
        assert [a.snapshot.stage for a in attempts] == [pb.STAGE_PREPARING] * 2 + [pb.STAGE_QUEUED] * 2
        assert b.sample("kerneldyno_waiting_attempts") == 2
        assert b.sample("kerneldyno_running_attempts", device="cpu:0") == 2
        with pytest.raises(errors.LanesFullError) as refused:
            b.start("result CORRECT")
        assert refused.value.retry_seconds
        gate.touch()
        assert [(await result_of(a, b.node)).outcome for a in attempts] == [CORRECT] * 4


async def test_work_is_spread_over_devices_and_matched_by_selector(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cells = cell_settings("cuda:0", lanes=1), cell_settings("cuda:1", lanes=1)
    async with running_node(*cells) as b:
        attempts = [b.start(f"await-file {gate}", "result CORRECT") for _ in range(2)]
        assert {a.snapshot.device for a in attempts} == {"cuda:0", "cuda:1"}
        gate.touch()
        for attempt in attempts:
            await result_of(attempt, b.node)
        for selector in (
            pb.DeviceSelector(kind="cpu"),
            pb.DeviceSelector(model="H200"),
            pb.DeviceSelector(min_memory_bytes=1001),
        ):
            with pytest.raises(errors.NoMatchingDeviceError):
                b.start(*PASS, device=selector)
        fits = pb.DeviceSelector(kind="cuda", model="fake", min_memory_bytes=1000)
        assert (await result_of(b.start(*PASS, device=fits), b.node)).outcome == CORRECT


async def test_counters_and_compute_sanitizer_get_a_gpu_where_there_are_other_devices_too() -> None:
    async with running_node(cell_settings("cpu:0"), cell_settings("cuda:0", lanes=1)) as b:
        for fields in ({"sanitize": pb.SANITIZE_ALL}, {"profile_level": pb.PROFILE_LEVEL_COUNTERS}):
            attempt = b.start(*PASS, **fields)
            assert (await result_of(attempt, b.node)).outcome == CORRECT
            assert attempt.snapshot.device == "cuda:0"


async def test_cancel_reaches_the_judge_and_the_queue() -> None:
    async with running_node(cell_settings(lanes=1)) as b:
        running, waiting = b.start("hang"), b.start("hang")
        b.node.cancel(waiting.token)
        assert waiting.done
        b.node.cancel(running.token)
        b.node.cancel(running.token)
        b.node.cancel("unknown")
        for attempt, detail in ((running, "told to"), (waiting, "the attempt was cancelled")):
            result = await result_of(attempt, b.node)
            assert (result.outcome, result.infrastructure_error.cause) == (INFRASTRUCTURE_ERROR, "CANCELLED")
            assert result.infrastructure_error.detail == detail
        assert waiting.snapshot.result is not None
        assert waiting.snapshot.result.attempts == 0


async def test_a_judge_that_dies_in_a_reference_blames_it_and_the_others_run_again(tmp_path: Path) -> None:
    """The attempt inside a reference ends as REFERENCE_ERROR. The other attempts only take longer."""
    runs, go = tmp_path / "runs", tmp_path / "go"
    async with running_node(cell_settings(lanes=3)) as b:
        neighbours = [b.start(f"touch {runs}", f"await-file {go}", "sleep 0.3", "result CORRECT") for _ in range(2)]
        await eventually(lambda: runs.exists() and len(runs.read_text().split()) == 2)
        guilty = b.start("reference begin", f"touch {go}", "die 11")
        blamed = await result_of(guilty, b.node)
        assert (blamed.outcome, blamed.attempts) == (REFERENCE_ERROR, 1)
        assert blamed.message == "the judge died while it parsed the candidate's source: signal 11 (SIGSEGV)"
        assert blamed.reference_error.message == blamed.message
        assert blamed.environment.torch_version == "0.fake"
        assert blamed.HasField("compiled")
        assert not blamed.correct
        for attempt in neighbours:
            result = await result_of(attempt, b.node)
            assert (result.outcome, result.attempts) == (CORRECT, 2)
        assert sorted(runs.read_text().split()) == sorted([a.token for a in neighbours] * 2)
        assert b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="reference") == 1


async def test_a_reference_that_is_over_is_not_blamed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with running_node() as b:
        attempt = b.start("reference begin", "reference end", f"die-once {mark}", "result CORRECT")
        result = await result_of(attempt, b.node)
        assert (result.outcome, result.attempts) == (CORRECT, 2)
        assert b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="judge") == 1


async def test_of_two_suspects_only_the_guilty_one_is_blamed(tmp_path: Path) -> None:
    """Two attempts are inside a reference when the judge dies.

    Each runs again alone, and only one kills the judge again.
    """
    both = tmp_path / "both"
    async with running_node(cell_settings(lanes=3)) as b:
        innocent = b.start("reference begin", f"touch {both}", "sleep 0.3", "reference end", "result CORRECT")
        guilty = b.start("reference begin", f"await-file {both}", "die 6")
        bystander = b.start("sleep 0.5", "result CORRECT")
        results = [await result_of(a, b.node) for a in (innocent, guilty, bystander)]
        assert [r.outcome for r in results] == [CORRECT, REFERENCE_ERROR, CORRECT]
        assert results[1].attempts == 2


async def test_a_zygote_that_ends_with_its_judge_is_not_the_cause() -> None:
    """The node may see judge and zygote end in any order. The reference is at fault, and no attempt runs again."""
    async with running_node() as b:
        result = await result_of(b.start("reference begin", "die-after-zygote 6"), b.node)
        assert (result.outcome, result.attempts) == (REFERENCE_ERROR, 1)
        assert b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="reference") == 1


async def test_a_reference_that_hangs_is_killed_at_its_limit() -> None:
    async with running_node(cell_settings(reference_seconds=0.5)) as b:
        hangs = b.start("reference begin", "block")
        result = await result_of(hangs, b.node)
        assert result.outcome == REFERENCE_ERROR
        assert "took longer than 0.5 s; an evaluator's --reference-timeout allows more" in result.message
        assert result.reference_error.type == "Timeout"
        assert (await result_of(b.start(*PASS), b.node)).outcome == CORRECT
        assert b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="reference_timeout") == 1


async def test_a_judge_that_dies_three_times_under_an_attempt_is_an_infrastructure_error() -> None:
    async with running_node() as b:
        result = await result_of(b.start("die 9"), b.node)
        assert (result.outcome, result.attempts) == (INFRASTRUCTURE_ERROR, 3)
        assert result.infrastructure_error.cause == "JUDGE_DIED"
        assert result.infrastructure_error.retryable
        assert "signal 9 (SIGKILL)" in result.message
        assert (await result_of(b.start(*PASS), b.node)).outcome == CORRECT


async def test_a_dead_zygote_never_looks_like_a_crashed_candidate(tmp_path: Path) -> None:
    """Runners die with their zygote. The judge may blame the candidate before the zygote's death is known."""
    async with running_node() as b:
        result = await result_of(b.start(f"zygote-killed-once {tmp_path / 'mark'}", *PASS), b.node)
        assert (result.outcome, result.attempts) == (CORRECT, 2)
        assert b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="zygote") == 1
        result = await result_of(b.start("killed"), b.node)
        assert (result.outcome, result.runtime_error.signal, result.attempts) == (pb.EvalResult.RUNTIME_ERROR, 9, 1)
        assert b.sample("kerneldyno_running_attempts", device="cpu:0") == 0


async def test_a_judge_that_leaves_takes_no_attempt_along(tmp_path: Path) -> None:
    """A judge that exits by itself cancels its attempts. No caller cancelled them, so they run again."""
    mark = tmp_path / "mark"
    async with running_node() as b:
        neighbour = b.start(f"touch {mark}", "sleep 1", "result CORRECT")
        await eventually(mark.exists)
        leaver = b.start(f"leave-once {mark}-2 1", "result CORRECT")
        for attempt in (neighbour, leaver):
            result = await result_of(attempt, b.node)
            assert (result.outcome, result.attempts) == (CORRECT, 2)


async def test_results_sent_before_the_judge_died_count() -> None:
    async with running_node() as b:
        first = b.start("sleep 0.2", "result CORRECT", "exit 5")
        result = await result_of(first, b.node)
        assert (result.outcome, result.attempts) == (CORRECT, 1)
        await eventually(lambda: b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="judge") == 1)
        assert (await result_of(b.start(*PASS), b.node)).outcome == CORRECT


async def test_a_dead_zygote_takes_the_judge_along_and_blames_nobody(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with running_node() as b:
        old = {process.pid for process in processes("--control-fd")}
        attempt = b.start(f"touch {mark}", "reference begin", "kill-zygote", "sleep 5", "result CORRECT")
        await eventually(mark.exists)
        await eventually(lambda: b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="zygote") == 1)
        b.node.cancel(attempt.token)
        result = await result_of(attempt, b.node)
        assert result.infrastructure_error.cause == "CANCELLED"
        await eventually(lambda: not old & {process.pid for process in processes("--control-fd")})


@pytest.mark.parametrize(
    "garbage",
    [
        r"b'\xff\xff\xff\xff'",
        r"b'\x00\x00\x00\x02{]'",
        r"b'\x00\x00\x00\x02[]'",
        r"wire.encode({'op': 'nonsense'})",
        r"wire.encode({'op': 'stage', 'attempt': token, 'stage': 'STAGE_DONE'})",
        r"wire.encode({'op': 'stage', 'attempt': [], 'stage': 'STAGE_LOADING'})",
        r"wire.encode({'op': 'result', 'attempt': token, 'result': pack(pb.EvalResult())})",
        r"wire.encode({'op': 'result', 'attempt': token, 'result': pack(pb.EvalResult(outcome=77))})",
        r"wire.encode({'op': 'result', 'attempt': token, 'result': {'outcome': 'CORRECT'}})",
        r"wire.encode({'op': 'result', 'attempt': token, 'result': 'CORRECT!'})",
        r"wire.encode({'op': 'result', 'attempt': token, 'result': 'AAAA'})",
        r"wire.encode({'op': 'result', 'attempt': token})",
        r"wire.encode({'op': 'ready', 'device': 'AAAA'})",
        r"wire.encode({'op': 'ready', 'device': '', 'environment': '', 'sandbox_layers': ['?']})",
        r"wire.encode({'op': 'stats', 'runner_exits': 7})",
    ],
)
async def test_a_judge_that_breaks_the_protocol_is_replaced(garbage: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with running_node() as b:
        result = await result_of(b.start(f"raw-once {mark} {garbage}", *PASS), b.node)
        assert (result.outcome, result.attempts) == (CORRECT, 2)
        assert b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="protocol") == 1


async def test_a_device_that_never_becomes_ready_fails_the_node() -> None:
    for judge, reason in (
        (("--fatal=no user namespaces",), "cpu:0: no user namespaces"),
        (("--die-at-start",), "no such"),
    ):
        with pytest.RaisesGroup(pytest.RaisesGroup(CellFailedError)) as failure:
            async with running_node(cell_settings(judge=judge)):
                pytest.fail("the node must not become ready")
        group = failure.value.exceptions[0]
        assert isinstance(group, BaseExceptionGroup)
        assert reason in str(group.exceptions[0])


async def test_an_attempt_that_nobody_watches_is_cancelled_unless_it_is_the_schedulers() -> None:
    clock = Clock()
    async with running_node(clock=clock) as b:
        direct, scheduled = b.start("hang"), b.start("hang", scheduled=True)
        async with aclosing(b.node.watch(direct)) as snapshots:
            await anext(snapshots)
            clock.now += 31
            b.node.tidy()
            assert not direct.cancelled
        clock.now += 29
        b.node.tidy()
        assert not direct.cancelled
        clock.now += 2
        b.node.tidy()
        assert direct.cancelled
        assert not scheduled.cancelled


async def test_results_wait_to_be_collected_for_a_bounded_time_and_in_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    async with running_node(clock=clock) as b:
        kept, collected = b.start(*PASS), b.start(*PASS)
        await eventually(lambda: kept.done and collected.done)
        await result_of(collected, b.node)
        assert b.node.attempts.tokens() == [kept.token]
        clock.now += 31
        b.node.tidy()
        with pytest.raises(errors.AttemptNotFoundError):
            b.node.attempts.get(collected.token)
        clock.now += 560
        b.node.tidy()
        assert b.node.attempts.get(kept.token) is kept
        clock.now += 10
        b.node.tidy()
        with pytest.raises(errors.AttemptNotFoundError):
            b.node.attempts.get(kept.token)
        monkeypatch.setattr("kerneldyno.evaluator.server.attempt_table._MAX_RESULTS", 2)
        many = []
        for _ in range(4):
            many.append(b.start(*PASS))
            await eventually(lambda: many[-1].done)
        b.node.tidy()
        assert b.node.attempts.tokens() == [a.token for a in many[-2:]]


async def test_the_schedulers_results_wait_for_an_hour_and_in_bounded_size_and_it_is_said_which_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()

    def dropped() -> list[str]:
        lines = [record.getMessage().split() for record in caplog.records]
        return [line[1].removeprefix("attempt=") for line in lines if line[0] == "event=result_dropped"]

    async with running_node(clock=clock) as b:
        first = b.start(*PASS, scheduled=True)
        await result_of(first, b.node)  # a debugging watcher does not acknowledge the result
        clock.now += 3000
        second = b.start(*PASS, scheduled=True)
        await eventually(lambda: second.done)
        clock.now += 599
        b.node.tidy()
        assert b.node.attempts.held() == [first, second]
        b.node.cancel(second.token)
        assert b.node.attempts.held() == [first, second], "only the scheduler can have it forgotten"
        clock.now += 2
        b.node.tidy()
        assert b.node.attempts.held() == [second]
        assert dropped() == [first.token]

        many = []
        for _ in range(3):
            clock.now += 1
            many.append(b.start(*PASS, scheduled=True))
            await eventually(lambda: many[-1].done)
        limit = sum(attempt.result_bytes for attempt in many[1:])
        monkeypatch.setattr("kerneldyno.evaluator.server.attempt_table._UNACKNOWLEDGED_BYTES", limit)
        b.node.tidy()
        assert b.node.attempts.held() == many[1:]
        assert dropped() == [first.token, second.token, many[0].token]
        b.node.forget(many[1].token)
        assert b.node.attempts.tokens() == [many[2].token]


async def test_what_the_scheduler_cancels_is_killed_and_nothing_of_it_is_kept() -> None:
    async with running_node(cell_settings(lanes=2)) as b:
        running, direct = b.start("hang", scheduled=True), b.start("hang")
        waiting = b.start("hang", scheduled=True)
        for token in (running.token, waiting.token, direct.token, "unknown"):
            b.node.forget(token)
        assert b.node.attempts.held() == []
        with pytest.raises(errors.TokenInUseError):
            b.start(*PASS, token=running.token, scheduled=True)
        await eventually(lambda: running.done and waiting.done)
        await eventually(lambda: b.node.attempts.tokens() == [direct.token])
        assert not direct.cancelled, "it is not the scheduler's"
        assert (await result_of(b.start(*PASS, token=running.token, scheduled=True), b.node)).outcome == CORRECT


async def test_labels_and_the_number_of_devices_are_part_of_the_selector() -> None:
    cells = cell_settings("cuda:0", lanes=1), cell_settings("cuda:1", lanes=1)
    async with running_node(*cells, labels={"rack": "a", "pool": "train"}) as b:
        for selector in (
            pb.DeviceSelector(node_labels={"rack": "b"}),
            pb.DeviceSelector(node_labels={"rack": "a", "room": ""}),
            pb.DeviceSelector(min_devices=3),
        ):
            with pytest.raises(errors.NoMatchingDeviceError):
                b.start(*PASS, device=selector)
        fits = pb.DeviceSelector(kind="cuda", min_devices=2, node_labels={"rack": "a"})
        assert (await result_of(b.start(*PASS, device=fits), b.node)).outcome == CORRECT


async def test_counters_outlive_a_judge_and_its_output_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running_node() as b:
        await result_of(b.start("print " + "x" * 2000, *PASS), b.node)
        await eventually(lambda: b.sample("kerneldyno_runner_spawns_total", device="cpu:0") == 1)
        processes("--control-fd")[0].kill()
        await eventually(lambda: b.sample("kerneldyno_judge_restarts_total", device="cpu:0", cause="judge") == 1)
        await result_of(b.start(*PASS), b.node)
        await eventually(lambda: b.sample("kerneldyno_runner_exits_total", device="cpu:0", how="clean") == 2)
        lines = [r.getMessage() for r in caplog.records if "event=child_output" in r.getMessage()]
        assert any("child=judge/cpu:0" in line and "x" * 400 in line for line in lines)
        assert all(len(line) < 600 for line in lines)


async def test_an_abandoned_attempt_may_be_retried_elsewhere() -> None:
    async with running_node(cell_settings(lanes=1)) as b:
        attempts = [b.start("hang"), b.start("hang")]
        b.node.drain()
        with pytest.raises(errors.ShuttingDownError):
            b.start(*PASS)
        b.node.abandon("NODE_STOPPED", "bye")
        for attempt in attempts:
            result = await result_of(attempt, b.node)
            assert (result.infrastructure_error.cause, result.infrastructure_error.retryable) == ("NODE_STOPPED", True)
        await asyncio.wait_for(b.node.until_empty(), 5)
        await eventually(lambda: b.sample("kerneldyno_running_attempts", device="cpu:0") == 0)


async def test_children_of_a_dead_judge_die_with_it() -> None:
    async with running_node():
        judge, zygote = processes("--control-fd")[0], processes("--fd")[0]
        judge.kill()
        await eventually(lambda: not zygote.is_running() or zygote.status() == psutil.STATUS_ZOMBIE)
