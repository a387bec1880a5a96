"""Tests of what a call sees where tokens are in use: owners see their own evaluations, operators see all."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from kerneldyno.rpc import errors
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from tests.scheduler.scheduler_harness import connect, failure, request, scheduler

ROLES = {"ann": "submit", "bob": "submit", "boss": "submit+operate", "eye": "read"}


def token(name: str) -> str:
    return f"{name}-is-who-this-token-belongs-to"


def of(name: str) -> dict[str, Any]:
    """Return options of a call that make it a call of `name`."""
    return {"metadata": (("authorization", f"Bearer {token(name)}"),), "timeout": 10}


@pytest.fixture(autouse=True)
def _tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (f"{name}:{roles}:{token(name)}" for name, roles in ROLES.items())
    monkeypatch.setenv("KERNELDYNO_TOKENS", ",".join(listed))


async def submit(stub: Any, name: str) -> Any:
    """Submit evaluation "r" of client "c", which waits; return the stream, which keeps it wanted."""
    call = stub.Evaluate(**of(name))
    await call.write(pb.EvaluateRequest(client_id="c", requests=[request("r", work=name)]))
    assert (await call.read()).accepted.ids == ["r"]
    return call


async def listed(stub: Any, name: str, **filters: Any) -> list[str]:
    """Return the client ids of the evaluations that `name` sees."""
    answer = await stub.ListEvaluations(pb.ListEvaluationsRequest(**filters), **of(name))
    return sorted(one.client_id for one in answer.evaluations)


def seen(client_id: str) -> pb.GetEvaluationRequest:
    return pb.GetEvaluationRequest(client_id=client_id, id="r")


async def test_owners_share_no_ids_and_see_only_their_own() -> None:
    async with scheduler() as (app, stub):
        calls = [await submit(stub, "ann"), await submit(stub, "bob")]
        assert app.core.clients.count == 2, "the same client id and id, twice"
        assert await listed(stub, "ann") == await listed(stub, "ann", client_id="c") == ["ann/c"]
        for other in ("bob/c", "bob"):
            assert isinstance(
                await failure(stub.GetEvaluation(seen(other), **of("ann"))), errors.EvaluationNotFoundError
            )
            cancel = pb.CancelEvaluationRequest(client_id=other, id="r")
            assert isinstance(await failure(stub.CancelEvaluation(cancel, **of("ann"))), errors.EvaluationNotFoundError)
            every = pb.CancelEvaluationsRequest(client_id=other, all=True)
            assert (await stub.CancelEvaluations(every, **of("ann"))).cancelled == 0
            assert await listed(stub, "ann", client_id=other) == []
        assert app.core.clients.count == 2
        assert (await stub.GetEvaluation(seen("c"), **of("ann"))).evaluation.client_id == "ann/c"
        for call in calls:
            call.cancel()


async def test_an_operator_has_work_of_its_own_and_names_that_of_others_as_it_is_listed() -> None:
    async with scheduler() as (_, stub):
        calls = [await submit(stub, "ann"), await submit(stub, "boss")]
        assert await listed(stub, "boss") == await listed(stub, "eye") == ["ann/c", "boss/c"]
        assert (await stub.GetEvaluation(seen("c"), **of("boss"))).evaluation.client_id == "boss/c"
        assert (await stub.GetEvaluation(seen("ann/c"), **of("boss"))).evaluation.client_id == "ann/c"
        assert (
            await stub.CancelEvaluations(pb.CancelEvaluationsRequest(client_id="ann/c", all=True), **of("boss"))
        ).cancelled == 1
        await stub.CancelEvaluation(pb.CancelEvaluationRequest(client_id="c", id="r"), **of("boss"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.CancelEvaluation(pb.CancelEvaluationRequest(client_id="c", id="r"), **of("eye"))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        for call in calls:
            call.cancel()


async def test_a_snapshot_tells_an_owner_of_its_own_share_and_those_who_see_all_of_every_share() -> None:
    async with scheduler(max_queued_per_client=7) as (app, stub), connect(app) as peer:
        calls = [await submit(stub, "ann"), await submit(stub, "bob")]
        fleet = FleetServiceStub(peer)

        async def shares(name: str) -> dict[str, tuple[int, int]]:
            watch = fleet.WatchCluster(fleet_pb.WatchClusterRequest(), **of(name))
            snapshot: Any = await watch.read()
            watch.cancel()
            return {share.name: (share.unfinished, share.max_unfinished) for share in snapshot.shares}

        assert await shares("ann") == {"ann": (1, 7)}
        assert await shares("eye") == await shares("boss") == {"ann": (1, 7), "bob": (1, 7)}
        for call in calls:
            call.cancel()
