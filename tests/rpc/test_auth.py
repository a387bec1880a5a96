"""Permissions on a real server: tokens, roles, rates, audit lines, and that no token appears in a log or message."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from kerneldyno.rpc import audit, auth, channel, errors, reflection, roles, tokens
from kerneldyno.rpc.auth import Gate
from kerneldyno.rpc.credentials import Credentials, choose
from kerneldyno.rpc.roles import Role
from kerneldyno.rpc.token_bucket import TokenBucket
from kerneldyno.rpc.tokens import ANONYMOUS
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb
from kerneldyno.v1 import scheduler_service_pb2 as scheduler_pb
from kerneldyno.v1.fleet_service_pb2_grpc import FleetServiceStub
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.rpc.open_services import METHODS, Served, call, serve
from tests.waiting import eventually

OK, DENIED, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED

#: A token for each role, by the name of the role.
TOKENS = {str(role): f"the-token-of-{role}-0123456789" for role in Role}
ENVIRONMENT = {tokens.TOKENS_VARIABLE: ",".join(f"{name}:{name}:{token}" for name, token in TOKENS.items())}

ANY_ROLE = {
    "SchedulerService/GetCapabilities",
    "SchedulerService/ValidateRequest",
    "EvaluatorService/GetCapabilities",
    "FleetService/ListNodes",
    "FleetService/WatchCluster",
    "FleetService/ListQuarantines",
}
LOOKS = {"SchedulerService/GetEvaluation", "SchedulerService/ListEvaluations"}
CANCELS = {
    "SchedulerService/CancelEvaluation",
    "SchedulerService/CancelEvaluations",
    "EvaluatorService/CancelAttempt",
}
#: Methods that each role may call besides ANY_ROLE; a copy of kerneldyno.rpc.roles on purpose, to check it.
MAY = {
    "submit": LOOKS
    | CANCELS
    | {
        "SchedulerService/Evaluate",
        "SchedulerService/EvaluateOnce",
        "RewardService/StreamRewards",
        "EvaluatorService/Evaluate",
        "EvaluatorService/WatchAttempt",
    },
    "operate": LOOKS
    | CANCELS
    | {"FleetService/DrainNode", "FleetService/UndrainNode", "FleetService/ReleaseQuarantine"},
    "node": {"FleetService/Synchronize", "FleetService/Work"},
    "read": LOOKS,
}


def gate(**environment: str) -> Gate:
    return Gate(tokens.load(None, environment or ENVIRONMENT))


def holding(role: str) -> Credentials:
    return Credentials(token=TOKENS[role])


def short(path: str) -> str:
    return path.removeprefix("/kerneldyno.v1.")


async def outcomes(served: Served, credentials: Credentials) -> dict[str, grpc.StatusCode]:
    """Return the status of every RPC."""
    async with served.dial(credentials) as peer:
        return {short(path): await call(peer, path) for path in METHODS}


def test_every_rpc_has_its_roles_and_no_other_is_named() -> None:
    ours = {path for path in roles._BY_METHOD if path.startswith("/kerneldyno.")}
    assert ours == set(METHODS), "a new RPC needs a line in kerneldyno.rpc.roles"
    assert all(roles.allowing(path) for path in METHODS)
    assert not roles.allowing("/kerneldyno.v1.SchedulerService/Another")


@pytest.mark.parametrize("role", MAY)
async def test_a_role_may_call_its_own_and_nothing_more(role: str) -> None:
    async with serve(gate()) as served:
        found = await outcomes(served, holding(role))
        assert found == {short(path): OK if short(path) in MAY[role] | ANY_ROLE else DENIED for path in METHODS}
        assert {caller.name for caller in served.callers} == {role}, "handlers know who it is, in their tasks too"


@pytest.mark.parametrize(
    "credentials", [Credentials(), Credentials(token="not-known-0123456789"), Credentials(token=TOKENS["submit"][:-1])]
)
async def test_no_token_and_a_wrong_one_open_nothing(credentials: Credentials) -> None:
    async with serve(gate()) as served:
        assert set((await outcomes(served, credentials)).values()) == {UNKNOWN}
        assert not served.callers


async def test_without_tokens_everybody_may_do_everything() -> None:
    async with serve() as served:
        assert set((await outcomes(served, Credentials())).values()) == {OK}
        assert set(served.callers) == {ANONYMOUS}
        assert set((await outcomes(served, holding("read"))).values()) == {OK}, "a token that nobody asked for"


async def test_probes_need_no_token_and_reflection_needs_any() -> None:
    async with serve(gate()) as served, served.dial() as nobody, served.dial(holding("read")) as reader:
        await health_pb2_grpc.HealthStub(nobody).Check(health_pb2.HealthCheckRequest(), timeout=10)
        question = reflection_pb2.ServerReflectionRequest(list_services="")

        async def ask(peer: grpc.aio.Channel, service: str) -> int:
            method = peer.stream_stream(
                f"/{service}/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            answers = [answer async for answer in method(iter([question]), timeout=10)]
            return len(answers[0].list_services_response.service)

        for service in reflection.NAMES:
            assert await ask(reader, service) >= 4
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(nobody, service)
            assert refused.value.code() is UNKNOWN


async def test_odd_authorization_headers_are_refused_in_order() -> None:
    async with serve(gate()) as served, served.dial() as peer:
        stub = FleetServiceStub(peer)
        token = TOKENS["read"]
        for value in ("", "Bearer", "Bearer ", token, f"Basic {token}", f"Bearer  {token}", f"Bearer {token},"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ListNodes(fleet_pb.ListNodesRequest(), metadata=(("authorization", value),), timeout=10)
            assert refused.value.code() is UNKNOWN, value
        for scheme in ("Bearer", "bearer"):
            header = (("authorization", f"{scheme} {token}"),)
            await stub.ListNodes(fleet_pb.ListNodesRequest(), metadata=header, timeout=10)


async def test_refusals_say_what_to_do() -> None:
    async with serve(gate()) as served:
        async with served.dial() as peer:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await FleetServiceStub(peer).ListNodes(fleet_pb.ListNodesRequest(), timeout=10)
            refused = errors.from_rpc_error(failed.value)
            assert isinstance(refused, errors.UnauthenticatedError)
            assert "KERNELDYNO_TOKEN" in refused.message
        async with served.dial(holding("read")) as peer:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await FleetServiceStub(peer).DrainNode(fleet_pb.DrainNodeRequest(node_id="n"), timeout=10)
            refused = errors.from_rpc_error(failed.value)
            assert isinstance(refused, errors.PermissionDeniedError)
            assert refused.message == "DrainNode needs the role operate; read has read"


async def test_a_handler_may_ask_for_more() -> None:
    path = "/kerneldyno.v1.SchedulerService/CancelEvaluations"
    async with serve(gate()) as served, served.dial(holding("submit")) as peer:
        served.ask = lambda: auth.require(Role.OPERATE, "cancel the work of others")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await SchedulerServiceStub(peer).CancelEvaluations(scheduler_pb.CancelEvaluationsRequest(), timeout=10)
        assert failed.value.code() is DENIED
        assert failed.value.details() == "submit has submit; only operate may cancel the work of others"
        async with served.dial(holding("operate")) as operator:
            assert await call(operator, path) is OK
        served.ask = lambda: auth.require(Role.OPERATE | Role.SUBMIT, "cancel")
        assert await call(peer, path) is OK
    async with serve() as served, served.dial() as anybody:
        served.ask = lambda: auth.require(Role.OPERATE, "cancel the work of others")
        assert await call(anybody, path) is OK


def test_what_only_operators_may_do_is_audited() -> None:
    names = {path.rpartition("/")[2] for path in METHODS}
    assert audit.audited() <= names, "a method was renamed"
    operators = {path.rpartition("/")[2] for path in METHODS if roles.allowing(path) == Role.OPERATE}
    assert operators <= audit.audited()
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert all(name in page.partition("## Audit lines")[2] for name in audit.audited())


# Rates of calls


async def test_calls_that_come_too_fast_are_told_when_to_come_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("rates") / "tokens.toml"
    file.write_text(
        f'[[token]]\nname = "hasty"\ntoken = "{TOKENS["read"]}"\nroles = ["read"]\nrequests_per_second = 0.5\n'
        f'[[token]]\nname = "other"\ntoken = "{TOKENS["node"]}"\nroles = ["read"]\nrequests_per_second = 0.5\n'
    )
    file.chmod(0o600)
    async with serve(Gate(tokens.load(str(file), {}))) as served, served.dial(holding("read")) as peer:
        stub = FleetServiceStub(peer)
        await stub.ListNodes(fleet_pb.ListNodesRequest(), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await asyncio.gather(*(stub.ListNodes(fleet_pb.ListNodesRequest(), timeout=10) for _ in range(20)))
        limited = errors.from_rpc_error(failed.value)
        assert isinstance(limited, errors.RateLimitedError)
        assert limited.code is failed.value.code()
        assert limited.retry_seconds is not None
        assert 0 < limited.retry_seconds <= 2
        async with served.dial(holding("node")) as others:
            assert await call(others, "/kerneldyno.v1.FleetService/ListNodes") is OK, "each has a bucket of its own"
        await health_pb2_grpc.HealthStub(peer).Check(health_pb2.HealthCheckRequest(), timeout=10)


async def test_streams_are_slowed_down_and_not_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("rates") / "tokens.toml"
    file.write_text(
        f'[[token]]\nname = "a"\ntoken = "{TOKENS["submit"]}"\nroles = ["submit"]\nrequests_per_second = 10\n'
    )
    file.chmod(0o600)
    async with serve(Gate(tokens.load(str(file), {}))) as served, served.dial(holding("submit")) as peer:
        start = time.monotonic()
        assert await call(peer, "/kerneldyno.v1.SchedulerService/Evaluate", messages=20) is OK
        assert time.monotonic() - start >= 0.95, "ten at once, ten more in a second"


async def test_a_bucket_keeps_its_rate_and_lends_in_advance() -> None:
    now = 100.0
    bucket = TokenBucket(4.0, lambda: now)
    assert [bucket.take() for _ in range(4)] == [0.0] * 4
    assert bucket.take() == pytest.approx(0.25)
    now += 0.25
    assert bucket.take() == 0.0
    assert bucket.take() > 0.0
    now += 1_000.0
    assert [bucket.take() for _ in range(5)][:4] == [0.0] * 4, "it holds one second's worth"
    assert bucket.take() > 0.0, "and no more"
    now += 1.0
    start = time.monotonic()
    await bucket.pace(5)
    assert time.monotonic() - start >= 0.2, "the fifth was in advance"
    assert bucket.take() == pytest.approx(0.5), "and has to be made up for"
    slow = TokenBucket(0.1, lambda: now)
    assert slow.take() == 0.0, "even the slowest has one"
    assert slow.take() == pytest.approx(10.0)


# Audit lines and logs


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kerneldyno.audit"]


async def test_what_operators_do_is_on_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serve(gate()) as served:
        async with served.dial(holding("operate")) as peer:
            await FleetServiceStub(peer).DrainNode(fleet_pb.DrainNodeRequest(node_id="n1"), timeout=10)
            request = fleet_pb.ReleaseQuarantineRequest(digest="abc")
            await FleetServiceStub(peer).ReleaseQuarantine(request, timeout=10)
            cancel = scheduler_pb.CancelEvaluationsRequest(client_id="someone", ids=["a", "b"])
            await SchedulerServiceStub(peer).CancelEvaluations(cancel, timeout=10)
            await FleetServiceStub(peer).ListNodes(fleet_pb.ListNodesRequest(), timeout=10)
        async with served.dial(holding("read")) as peer:
            await call(peer, "/kerneldyno.v1.FleetService/UndrainNode", fleet_pb.UndrainNodeRequest(node_id="n2"))
        await eventually(lambda: len(audit_lines(caplog)) >= 4)  # the answer is sent before the line is written
        async with served.dial() as peer:
            evil = fleet_pb.DrainNodeRequest(node_id='n"\nevent=audit principal=root' + "x" * 1000)
            await call(peer, "/kerneldyno.v1.FleetService/DrainNode", evil)
        await eventually(lambda: len(audit_lines(caplog)) >= 5)
    lines = audit_lines(caplog)
    start = "event=audit principal=operate peer=ipv4:127.0.0.1:"
    assert [line.startswith(start) for line in lines] == [True, True, True, False, False]
    assert lines[0].endswith('method=DrainNode node="n1" result=OK')
    assert lines[1].endswith('method=ReleaseQuarantine node="" digest="abc" result=OK')
    assert lines[2].endswith('method=CancelEvaluations client="someone" ids=2 all=false result=OK')
    assert "principal=read " in lines[3]
    assert lines[3].endswith('node="n2" result=PERMISSION_DENIED')
    assert "principal=- " in lines[4]
    assert lines[4].endswith("result=UNAUTHENTICATED")
    assert "\n" not in lines[4]
    assert len(lines[4]) < 400


async def test_no_token_is_in_any_log_or_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "a-wrong-token-0123456789"
    known = gate()
    async with serve(known) as served:
        told = []
        for token in (*TOKENS.values(), wrong):
            credentials = Credentials(token=token)
            told.append(repr(credentials) + str(credentials))
            async with served.dial(credentials) as peer:
                for name in ("DrainNode", "ListNodes"):
                    try:
                        method = getattr(FleetServiceStub(peer), name)
                        await method(getattr(fleet_pb, f"{name}Request")(), timeout=10)
                    except grpc.aio.AioRpcError as error:
                        told += [str(error), repr(error), str(errors.from_rpc_error(error))]
        told += [caplog.text, repr(known), repr(vars(known)), repr(vars(tokens.load(None, ENVIRONMENT)))]
    assert "event=call_refused" in caplog.text
    for token in (*TOKENS.values(), wrong):
        assert not any(token in text for text in told)


# Clients and their tokens


def test_a_token_never_crosses_a_network_in_the_clear() -> None:
    bearer = Credentials(token=TOKENS["submit"])
    for address in ("10.0.0.1:1", "scheduler:50051", "dns:///10.0.0.1:1", "0.0.0.0:1", "ipv4:127.0.0.1:1,10.0.0.1:1"):
        with pytest.raises(errors.CredentialsError, match="unencrypted") as refused:
            channel.open(address, bearer)
        assert TOKENS["submit"] not in str(refused.value)
    for address in ("127.0.0.1:1", "localhost:1", "[::1]:1", "dns:///127.0.0.1:1", "unix:/tmp/socket"):
        assert channel.stays_here(address)


async def test_metadata_of_a_caller_stays_beside_the_token() -> None:
    async with serve(gate()) as served, served.dial(holding("read")) as peer:
        stub = FleetServiceStub(peer)
        await stub.ListNodes(fleet_pb.ListNodesRequest(), metadata=(("x-mine", "1"),), timeout=10)
        assert served.metadata["x-mine"] == "1"
        assert served.metadata["authorization"] == f"Bearer {TOKENS['read']}"


def test_parameters_come_before_the_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text("from-the-file\n")
    file.chmod(0o600)
    environ = {"KERNELDYNO_TLS_CA": "ca", "KERNELDYNO_TOKEN": "from-the-environment"}
    assert choose(environ=environ) == Credentials(tls_ca="ca", token="from-the-environment")
    assert choose(environ=environ, token="given").token == "given"
    assert choose(environ=environ, token_file=str(file)).token == "from-the-file"
    assert choose(environ=environ, tls_ca="", token="") == Credentials()
    assert choose(environ={"KERNELDYNO_TOKEN_FILE": str(file)}).token == "from-the-file"
    file.chmod(0o644)
    with pytest.raises(errors.CredentialsError, match="chmod 600"):
        choose(environ=environ, token_file=str(file))
    file.chmod(0o600)
    file.write_text("two words\n")
    with pytest.raises(errors.CredentialsError, match="check that the file is right"):
        choose(environ={}, token_file=str(file))
