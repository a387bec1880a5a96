"""EvaluatorService on a real socket with fake judges: streams, re-attachment, refusals and capabilities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kerneldyno.evaluator.server.cell import CellSettings
from kerneldyno.evaluator.server.evaluator_service import EvaluatorService
from kerneldyno.rpc import channel, errors, serving
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.v1 import evaluation_pb2 as eval_pb
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc
from tests.evaluator.node_harness import (
    PASS,
    RunningNode,
    cell_settings,
    remaining,
    request,
    running_node,
)
from tests.waiting import eventually


@asynccontextmanager
async def edge(
    *cells: CellSettings, **options: Any
) -> AsyncIterator[tuple[pb_grpc.EvaluatorServiceAsyncStub, RunningNode]]:
    """Serve a node. Yield a stub for it, and the node."""
    async with running_node(*cells, **options) as b:
        server = serving.make_server(ServerInterceptor(b.prometheus))
        pb_grpc.add_EvaluatorServiceServicer_to_server(EvaluatorService(b.node), server)
        address = serving.listen(server, serving.Address("127.0.0.1", 0))
        await server.start()
        try:
            async with grpc.aio.insecure_channel(str(address), options=channel.client_options()) as connection:
                yield pb_grpc.EvaluatorServiceStub(connection), b
        finally:
            await server.stop(0)


def evaluate(token: str, *steps: str, **fields: Any) -> pb.EvaluatorServiceEvaluateRequest:
    return pb.EvaluatorServiceEvaluateRequest(attempt_token=token, request=request(*steps, **fields))


async def failure(call: Any) -> errors.KernelDynoError:
    """Return the error that `call` ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    error = errors.from_rpc_error(caught.value)
    assert error is not None
    return error


async def test_evaluate_streams_snapshots_and_ends_with_the_result() -> None:
    async with edge() as (stub, _):
        events = [answer.event async for answer in stub.Evaluate(evaluate("t1", *PASS), timeout=20)]
        assert {event.attempt_token for event in events} == {"t1"}
        assert [event.HasField("result") for event in events] == [False] * (len(events) - 1) + [True]
        assert (events[0].stage, events[-1].stage) == (eval_pb.STAGE_PREPARING, eval_pb.STAGE_DONE)
        assert events[-1].result.outcome == eval_pb.EvalResult.CORRECT
        assert events[-1].result.id == "request"


async def test_the_judge_gets_every_default_filled_in(tmp_path: Path) -> None:
    async with edge() as (stub, b):
        call = stub.Evaluate(evaluate("t1", "hang"), timeout=20)
        await call.read()
        full = b.node.attempts.get("t1").request
        assert (full.entry_point, full.backend, full.toolkit) == ("Model", "triton", "kernelbench")
        assert (full.num_correct_trials, full.num_perf_trials, full.timeouts.load_timeout.seconds) == (5, 100, 60)
        call.cancel()


async def test_an_attempt_outlives_its_stream_and_is_found_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with edge() as (stub, b):
        call = stub.Evaluate(evaluate("t1", "stage STAGE_CHECKING", f"await-file {gate}", "result INCORRECT"))
        await call.read()
        call.cancel()
        await eventually(lambda: b.node.attempts.get("t1").watchers == 0)
        again = stub.WatchAttempt(pb.WatchAttemptRequest(attempt_token="t1"), timeout=20)
        first = await again.read()
        assert isinstance(first, pb.WatchAttemptResponse)
        assert (first.event.stage, first.event.device) == (eval_pb.STAGE_CHECKING, "cpu:0")
        error = await failure(stub.Evaluate(evaluate("t1", *PASS), timeout=20))
        assert isinstance(error, errors.TokenInUseError)
        gate.touch()
        events = await remaining(again)
        assert events[-1].result.outcome == eval_pb.EvalResult.INCORRECT
        assert b.node.attempts.tokens() == []


async def test_a_result_whose_stream_broke_waits_for_a_watch(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with edge() as (stub, b):
        call = stub.Evaluate(evaluate("t1", f"await-file {gate}", "result CORRECT"))
        await call.read()
        call.cancel()
        await eventually(lambda: b.node.attempts.get("t1").watchers == 0)
        gate.touch()
        await eventually(lambda: b.node.attempts.get("t1").done)
        assert b.node.attempts.tokens() == ["t1"]
        watch = stub.WatchAttempt(pb.WatchAttemptRequest(attempt_token="t1"), timeout=20)
        assert [answer.event.stage async for answer in watch] == [eval_pb.STAGE_DONE]
        assert b.node.attempts.tokens() == []


async def test_a_direct_caller_that_goes_away_has_a_grace() -> None:
    async with edge(unwatched_seconds=0.3) as (stub, b):
        call = stub.Evaluate(evaluate("t1", "hang"))
        await call.read()
        await asyncio.sleep(1)
        assert not b.node.attempts.get("t1").cancelled
        call.cancel()
        await eventually(lambda: b.node.attempts.get("t1").done)


async def test_cancel_ends_the_stream_with_a_result_and_may_be_repeated() -> None:
    async with edge() as (stub, _):
        call = stub.Evaluate(evaluate("t1", "hang"), timeout=20)
        await call.read()
        for token in ("t1", "t1", "unknown"):
            await stub.CancelAttempt(pb.CancelAttemptRequest(attempt_token=token), timeout=20)
        events = await remaining(call)
        assert events[-1].result.infrastructure_error.cause == "CANCELLED"


async def test_a_malformed_request_names_every_bad_field() -> None:
    async with edge() as (stub, b):
        bad = evaluate(
            "t" * 101, backend="cobol", num_correct_trials=-1, tolerance=eval_pb.Tolerance(atol=float("nan"))
        )
        error = await failure(stub.Evaluate(bad, timeout=20))
        assert isinstance(error, errors.InvalidRequestError)
        assert [violation.field for violation in error.violations] == [
            *("kernel_code", "backend", "num_correct_trials", "tolerance.atol", "attempt_token")
        ]
        for needs_gpu in (
            {"enable_profiling": True},
            {"profile_level": eval_pb.PROFILE_LEVEL_COUNTERS},
            {"sanitize": eval_pb.SANITIZE_WINNERS},
            {"sanitize": eval_pb.SANITIZE_ALL},
        ):
            error = await failure(stub.Evaluate(evaluate("t1", *PASS, **needs_gpu), timeout=20))
            assert isinstance(error, errors.InvalidRequestError)
            assert [violation.field for violation in error.violations] == list(needs_gpu)
        assert b.node.attempts.tokens() == []
        labels = {
            "grpc_type": "server_stream",
            "grpc_service": "kerneldyno.v1.EvaluatorService",
            "grpc_method": "Evaluate",
            "grpc_code": "INVALID_ARGUMENT",
        }
        await eventually(lambda: b.sample("grpc_server_handled_total", **labels))  # it is counted after its answer


async def test_refusals_have_their_codes() -> None:
    async with edge(cell_settings(lanes=1)) as (stub, b):
        full = [stub.Evaluate(evaluate(f"t{index}", "hang"), timeout=20) for index in range(2)]
        for call in full:
            await call.read()
        error = await failure(stub.Evaluate(evaluate("t2", *PASS), timeout=20))
        assert isinstance(error, errors.LanesFullError)
        assert error.retry_seconds == 1.0
        other = evaluate("t3", *PASS, device=eval_pb.DeviceSelector(kind="cuda"))
        assert isinstance(await failure(stub.Evaluate(other, timeout=20)), errors.NoMatchingDeviceError)
        cuda = evaluate("t3", *PASS, backend="cuda")
        assert isinstance(await failure(stub.Evaluate(cuda, timeout=20)), errors.NoMatchingDeviceError)
        unknown = pb.WatchAttemptRequest(attempt_token="nobody")
        assert isinstance(await failure(stub.WatchAttempt(unknown, timeout=20)), errors.AttemptNotFoundError)
        b.node.drain()
        error = await failure(stub.Evaluate(evaluate("t4", *PASS), timeout=20))
        assert isinstance(error, errors.ShuttingDownError)


async def test_capabilities_tell_devices_names_and_layers() -> None:
    async with edge(cell_settings("cuda:0"), cell_settings("cuda:1", lanes=4)) as (stub, _):
        told = await stub.GetCapabilities(pb.EvaluatorServiceGetCapabilitiesRequest(), timeout=20)
        assert told.node_id == "node"
        assert [(d.name, d.lanes, d.ready, d.memory_bytes) for d in told.devices] == [
            ("cuda:0", 2, True, 1000),
            ("cuda:1", 4, True, 1000),
        ]
        assert list(told.backends)[:3] == ["triton", "cuda", "torch"]
        assert [(layer.name, layer.active) for layer in told.sandbox_layers] == [("pid_namespace", True)]
        assert (told.candidate_memory_bytes, told.spare_runners, told.profiling) == (4096, 1, True)
