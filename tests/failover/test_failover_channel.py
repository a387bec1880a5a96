"""Tests of the channel with several addresses, on real sockets: unreachable ones, standbys, hints, names, TLS."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kerneldyno.client import (
    AddressError,
    AsyncClient,
    EvalRequest,
    EvalResult,
    EvaluationNotFoundError,
    UnavailableError,
)
from kerneldyno.rpc import channel, errors, failover
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.failover import NoneServesError
from kerneldyno.rpc.rotation import Endpoint
from kerneldyno.rpc.tls import ServerTls
from kerneldyno.v1.scheduler_service_pb2 import SchedulerServiceGetCapabilitiesRequest as Ask
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.client.command import NOBODY
from tests.client.fake_fleet import FakeFleet
from tests.evaluator.fleet_harness import proxy_to
from tests.failover.standby import standby
from tests.waiting import eventually, free_port

from tests.rpc.certificates import Authority  # isort: skip
from tests.rpc.open_services import serve  # isort: skip


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as running:
        yield running


@asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """Yield an address that accepts connections and never says anything, like a machine that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def capabilities(peer: grpc.aio.Channel, timeout: float = 10.0) -> Any:
    stub: Any = SchedulerServiceStub(peer)
    return await stub.GetCapabilities(Ask(), timeout=timeout)


# Unhappy paths first


@pytest.mark.parametrize("address", ["a:1,", "127.0.0.1:1,127.0.0.1:1", "127.0.0.1:1,b"])
async def test_a_client_with_a_bad_list_does_not_open(address: str) -> None:
    with pytest.raises(AddressError):
        await AsyncClient(address).__aenter__()


async def test_nobody_at_any_address_fails_at_once_and_names_each() -> None:
    other = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    async with AsyncClient(f"{NOBODY},{other}") as client:
        with pytest.raises(UnavailableError) as caught:
            await client.capabilities()
        with pytest.raises(UnavailableError, match="no scheduler serves"):
            await client.evaluate_once(EvalRequest(id="a"))
    assert time.monotonic() - began < 5
    text = str(caught.value)
    assert text.startswith(f"no scheduler serves at {NOBODY},{other}: {NOBODY}: nothing listens there")
    assert f"; {other}: nothing listens there" in text


@pytest.mark.parametrize("pause", [None, 0.05])
async def test_streams_and_watches_give_up_in_time_and_name_each(pause: float | None) -> None:
    async with (
        standby(pause=pause) as second,
        AsyncClient(f"{NOBODY},{second.address}", reconnect_timeout=1.0) as client,
    ):
        began = time.monotonic()
        with pytest.raises(UnavailableError) as stream:
            [result async for result in client.evaluate([EvalRequest(id="a")])]
        with pytest.raises(UnavailableError) as watch:
            await anext(client.watch())
        with pytest.raises(UnavailableError) as single:
            await client.capabilities()
        assert 2.0 < time.monotonic() - began < 10.0
    assert stream.value.outstanding == ("a",)
    for error in (stream, watch, single):
        assert f"{NOBODY}: nothing listens there" in str(error.value)
        assert f"{second.address}: is a standby" in str(error.value)


async def test_a_stream_that_ends_well_at_once_was_served(scheduler: FakeFleet) -> None:
    async with AsyncClient(f"{NOBODY},{scheduler.address}") as client:
        [result async for result in client.evaluate([EvalRequest(id="a")])]
        used = client._channel
        assert used is not None
        await eventually(lambda: used._answered)
        assert used.report() == ""


async def test_two_standbys_that_name_each_other_are_not_hammered() -> None:
    async with standby(retry_seconds=0.3) as first, standby(first.address, retry_seconds=0.3) as second:
        first.serving = second.address
        async with AsyncClient(f"{first.address},{second.address}", call_timeout=2.0) as client:
            began = time.monotonic()
            with pytest.raises(UnavailableError, match=f"says that {second.address} serves"):
                await client.capabilities()
            assert time.monotonic() - began <= 2.5
    calls = first.refused["GetCapabilities"], second.refused["GetCapabilities"]
    assert 4 <= sum(calls) <= 16, calls
    assert abs(calls[0] - calls[1]) <= 1


async def test_one_standby_without_a_scheduler_is_asked_until_the_limit() -> None:
    async with standby(retry_seconds=0.2) as only, AsyncClient(only.address, call_timeout=3.0) as client:
        with pytest.raises(UnavailableError, match="no scheduler serves"):
            await client.capabilities()
    assert only.refused["GetCapabilities"] <= 30  # gRPC's own retries included


@pytest.mark.parametrize(
    "hint", [NOBODY, "nonsense", "http://127.0.0.1:1", "unix:/tmp/none", "no-such-host.invalid:1", "x" * 5000]
)
async def test_a_wrong_hint_leads_back_to_the_list(scheduler: FakeFleet, hint: str) -> None:
    async with standby(hint) as first, AsyncClient(f"{first.address},{scheduler.address}") as client:
        assert (await client.capabilities()).backends == ["triton"]
        assert [result.id async for result in client.evaluate([EvalRequest(id="a")])] == ["a"]
    assert sum(first.refused.values()) == 1


async def test_a_hint_never_gets_a_token_that_the_list_would_not_send(scheduler: FakeFleet) -> None:
    async with standby("192.0.2.1:50051") as first:
        async with AsyncClient(f"{first.address},{scheduler.address}", token="secret") as client:
            assert (await client.capabilities()).backends == ["triton"]
        with pytest.raises(CredentialsError):
            channel.open(f"{first.address},192.0.2.1:50051", Credentials(token="secret"))


async def test_an_address_that_hangs_costs_a_second_once(scheduler: FakeFleet) -> None:
    async with black_hole() as hole, AsyncClient(f"{hole},{scheduler.address}") as client:
        began = time.monotonic()
        assert (await client.capabilities()).backends == ["triton"]
        assert 0.5 < time.monotonic() - began < 5.0
        began = time.monotonic()
        assert [result.id async for result in client.evaluate([EvalRequest(id="a")])] == ["a"]
        await client.nodes()
        assert time.monotonic() - began < 1.0


async def test_a_deadline_is_kept_while_addresses_are_tried() -> None:
    async with (
        black_hole() as hole,
        standby(retry_seconds=60.0) as second,
        channel.open(f"{second.address},{hole}", patience=60.0) as peer,
    ):
        began = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError):
            await capabilities(peer, timeout=1.0)
        assert time.monotonic() - began < 1.5
        with pytest.raises(grpc.aio.AioRpcError):  # the pause that the standby asked for is not waited out
            await capabilities(peer, timeout=1.0)
        assert time.monotonic() - began < 3.0


async def test_refusals_of_the_one_that_serves_are_final(scheduler: FakeFleet) -> None:
    async with standby() as second, AsyncClient(f"{scheduler.address},{second.address}") as client:
        with pytest.raises(EvaluationNotFoundError):
            await client.get("none")
    assert not second.refused


async def test_a_journal_that_stalls_is_no_reason_to_go_elsewhere(scheduler: FakeFleet) -> None:
    async with standby() as second, AsyncClient(f"{scheduler.address},{second.address}") as client:
        scheduler.refusals.append(errors.JournalStalledError("full", retry_seconds=0.2))
        assert [result.id async for result in client.evaluate([EvalRequest(id="a")])] == ["a"]
    assert not second.refused


async def test_a_closed_channel_says_so(scheduler: FakeFleet) -> None:
    peer = channel.open(f"{NOBODY},{scheduler.address}")
    await peer.close()
    with pytest.raises(grpc.aio.UsageError):
        await capabilities(peer)


async def test_cancelling_a_call_cancels_it(scheduler: FakeFleet) -> None:
    async with standby() as second, AsyncClient(f"{scheduler.address},{second.address}") as client:
        call = asyncio.create_task(client.evaluate_once(EvalRequest(id="a", kernel_code="hang")))
        await eventually(lambda: scheduler.runs == ["a"])
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


# Finding the one that serves


async def test_a_hint_saves_the_way_through_the_list(scheduler: FakeFleet) -> None:
    async with (
        standby() as other,
        standby(scheduler.address) as first,
        AsyncClient(f"{first.address},{other.address},{scheduler.address}") as client,
    ):
        await client.capabilities()
    assert not other.refused


async def test_a_single_address_follows_a_hint_and_comes_back(scheduler: FakeFleet) -> None:
    async with standby(scheduler.address) as only, channel.open(only.address, patience=10.0) as peer:
        await capabilities(peer)
        assert peer.address == scheduler.address
        await scheduler.stop()
        only.serving = ""
        with pytest.raises(NoneServesError):
            await capabilities(peer, timeout=1.0)
        assert peer.address == only.address
        await scheduler.start()
        only.serving = scheduler.address
        await capabilities(peer)


async def test_a_call_that_breaks_at_a_hinted_address_comes_back_to_the_list(scheduler: FakeFleet) -> None:
    async with proxy_to(int(scheduler.address.rpartition(":")[2])) as proxy:
        hint = f"127.0.0.1:{proxy.port}"
        async with standby(hint) as only, AsyncClient(only.address) as client:
            call = asyncio.create_task(client.evaluate_once(EvalRequest(id="a", kernel_code="sleep 1")))
            await eventually(lambda: scheduler.runs == ["a"])
            proxy.reset()
            result = await call
    assert (result.id, result.outcome) == ("a", EvalResult.CORRECT)


async def test_a_call_whose_connection_was_closed_for_another_goes_on(
    scheduler: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC ends such a call as cancelled: mostly by an exception of asyncio, and now and then by a status."""
    cut = grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, grpc.aio.Metadata(), grpc.aio.Metadata(), "CANCELLED")
    async with channel.open(f"{scheduler.address},{NOBODY}") as peer:
        calls, real = [], peer._unary

        async def unary(method: str, attempt: Any, timeout: float | None) -> Any:
            async def first_cut_off(to: grpc.aio.Channel, seconds: float | None) -> Any:
                calls.append(to)
                if len(calls) == 1:
                    await peer._peers.pop(Endpoint(scheduler.address)).close()
                    raise cut
                return await attempt(to, seconds)

            return await real(method, first_cut_off, timeout)

        monkeypatch.setattr(peer, "_unary", unary)
        await capabilities(peer)
        assert len(calls) == 2


async def test_many_clients_do_not_hammer_a_standby_during_a_take_over(scheduler: FakeFleet) -> None:
    """A thousand would be too many for this machine; the rate of each client is what counts."""
    seconds, count = 2.0, 40
    await scheduler.stop()
    async with standby(retry_seconds=0.5) as second:
        clients = [AsyncClient(f"{scheduler.address},{second.address}") for _ in range(count)]
        for client in clients:
            await client.__aenter__()
        asking = [asyncio.create_task(client.capabilities()) for client in clients]
        await asyncio.sleep(seconds)
        await scheduler.start()
        await asyncio.gather(*asking)
        for client in clients:
            await client.close()
    assert count <= second.refused["GetCapabilities"] <= count * (1 + (seconds + 1.5) / 0.5)


async def test_a_client_leaves_a_machine_that_no_longer_answers(
    scheduler: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream breaks when pings go unanswered; here after 1.5 s instead of 17 s."""
    monkeypatch.setattr(channel, "_FAILOVER_KEEPALIVE_MS", 1_000)
    monkeypatch.setattr(channel, "_FAILOVER_KEEPALIVE_TIMEOUT_MS", 500)
    async with (
        FakeFleet() as former,
        proxy_to(int(former.address.rpartition(":")[2])) as proxy,
        AsyncClient(f"127.0.0.1:{proxy.port},{scheduler.address}") as client,
    ):
        results = client.evaluate([EvalRequest(id="a", kernel_code="sleep 1")])
        single = asyncio.create_task(client.evaluate_once(EvalRequest(id="b", kernel_code="sleep 1")))
        first = asyncio.create_task(anext(results))
        await eventually(lambda: sorted(former.runs) == ["a", "b"])
        proxy.swallow()
        assert (await first).id == "a"
        assert (await single).id == "b"
        await results.aclose()
    assert sorted(scheduler.runs) == ["a", "b"]


async def test_a_stream_that_hangs_at_a_stopped_machine_ends_when_another_serves(scheduler: FakeFleet) -> None:
    """The streams to an address that no longer answers end when another address is known to serve."""
    async with FakeFleet() as former, channel.open(f"{former.address},{scheduler.address}") as peer:
        stub: Any = SchedulerServiceStub(peer)
        await capabilities(peer)
        stream = stub.Evaluate()
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0.1)
        peer._turn_from(Endpoint(former.address), "gave no answer")  # as a call without an answer does
        await capabilities(peer)
        assert peer.address == scheduler.address
        await asyncio.wait([reading], timeout=5)
        assert reading.done()


# DNS


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Let tests give names more than one address; the fixture maps HOST:PORT to addresses."""
    known: dict[str, list[str]] = {}
    real = failover.lookup

    async def lookup(address: str) -> list[Endpoint]:
        if address not in known:
            return await real(address)
        found = [Endpoint(one, address) for one in known[address]]
        return found if len(found) > 1 else [Endpoint(address)]

    monkeypatch.setattr(failover, "lookup", lookup)
    return known


async def test_a_name_with_several_addresses_counts_as_several(
    scheduler: FakeFleet, names: dict[str, list[str]]
) -> None:
    async with standby() as first:
        names["schedulers.invalid:50051"] = [first.address, scheduler.address]
        async with AsyncClient("schedulers.invalid:50051") as client:
            assert (await client.capabilities()).backends == ["triton"]
            assert [result.id async for result in client.evaluate([EvalRequest(id="a")])] == ["a"]
    assert sum(first.refused.values()) == 1


async def test_a_name_that_moves_is_looked_up_again(names: dict[str, list[str]]) -> None:
    name = "schedulers.invalid:50051"
    async with standby() as first, standby() as second, FakeFleet() as third:
        names[name] = [first.address, second.address]
        async with AsyncClient(name, call_timeout=2.0) as client:
            with pytest.raises(UnavailableError) as caught:
                await client.capabilities()
            assert f"{first.address} ({name}): is a standby" in str(caught.value)
            names[name] = [first.address, third.address]
            assert (await client.capabilities()).backends == ["triton"]


async def test_a_name_that_cannot_be_resolved_is_said_to_be_wrong() -> None:
    async with AsyncClient("no-such-host.invalid:1,also-none.invalid:1", reconnect_timeout=1.0) as client:
        with pytest.raises(UnavailableError) as caught:
            await client.evaluate_once(EvalRequest(id="a"))
    assert "no-such-host.invalid:1: the host name cannot be resolved" in str(caught.value)
    assert "also-none.invalid:1: the host name cannot be resolved" in str(caught.value)


async def test_lookups_split_names_of_several_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"one": ["10.0.0.1"], "two": ["10.0.0.1", "fd00::1", "10.0.0.1"]}

    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        if host not in found:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (one, port)) for one in found[host]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await failover.lookup("two:5") == [Endpoint("10.0.0.1:5"), Endpoint("[fd00::1]:5")]
    assert str((await failover.lookup("dns:///two:5"))[0]) == "10.0.0.1:5 (two:5)"
    for address in ("one:5", "10.0.0.9:5", "localhost:5", "unix:/x"):
        assert await failover.lookup(address) == [Endpoint(address)]
    assert await failover.lookup("none:5") == []


# TLS


@pytest.mark.slow
async def test_tls_checks_the_name_that_was_given(tmp_path: Path, names: dict[str, list[str]]) -> None:
    """Endpoints of a DNS name need a certificate for the name; those of another name are refused."""
    authority = Authority(tmp_path)
    right, wrong = authority.issue("right", host="DNS:schedulers.invalid"), authority.issue("wrong", host="DNS:other")
    credentials = Credentials(tls_ca=authority.cert)
    async with (
        serve(encryption=ServerTls(wrong.cert, wrong.key)) as impostor,
        serve(encryption=ServerTls(right.cert, right.key)) as served,
    ):
        names["schedulers.invalid:50051"] = [impostor.address, served.address]
        async with channel.open("schedulers.invalid:50051", credentials, own_connection=True) as peer:
            await capabilities(peer)
            assert peer.address == served.address
        names["schedulers.invalid:50051"] = [impostor.address, NOBODY]
        async with channel.open("schedulers.invalid:50051", credentials, own_connection=True) as peer:
            with pytest.raises(NoneServesError, match="certificate is for another host name"):
                await capabilities(peer)
    assert not impostor.callers


@pytest.mark.slow
async def test_tls_refuses_a_hint_to_a_machine_without_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good, other = authority.issue("good"), authority.issue("other", host="DNS:other")
    async with (
        serve(encryption=ServerTls(good.cert, good.key)) as served,
        serve(encryption=ServerTls(other.cert, other.key)) as impostor,
        channel.open(served.address, Credentials(tls_ca=authority.cert), own_connection=True, patience=10) as peer,
    ):
        await capabilities(peer)
        peer._turn_from(Endpoint(served.address), "is a standby", peer._hinted(impostor.address))
        await capabilities(peer)
        assert peer.address == served.address
    assert not impostor.callers
