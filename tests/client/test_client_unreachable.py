"""Tests of connections that cannot be made: each error says what is wrong and what to do, not only what gRPC saw."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from kerneldyno.client import AddressError, AsyncClient, EvalRequest, UnavailableError, WrongServiceError
from kerneldyno.rpc import channel, serving
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.tls import ServerTls
from kerneldyno.v1 import evaluator_service_pb2
from tests.client.command import NOBODY, run
from tests.client.scheduler_process import scheduler_process  # also puts tests/rpc on the path

from tests.rpc.certificates import Authority, Pair  # isort: skip
from tests.rpc.open_services import serve  # isort: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server(ca: Authority) -> Pair:
    return ca.issue("server")


async def told(address: str, **credentials: str) -> str:
    """Return the error of a single call; check that a stream and a watch say the same about the connection."""
    async with AsyncClient(address, reconnect_timeout=1.0, **credentials) as client:
        with pytest.raises(UnavailableError) as single:
            await client.capabilities()
        with pytest.raises(UnavailableError) as stream:
            async for _ in client.evaluate([EvalRequest(id="one")]):
                pass
        with pytest.raises(UnavailableError) as watch:
            await anext(client.watch())
    text = str(single.value)
    advice = text.partition(": ")[2].partition(" [")[0]
    assert advice in str(stream.value)
    assert advice in str(watch.value)
    assert stream.value.outstanding == ("one",)
    return text


async def test_tls_without_a_ca_asks_for_it(server: Pair) -> None:
    async with serve(encryption=ServerTls(server.cert, server.key)) as served:
        text = await told(served.address)
    assert "a service with TLS" in text
    assert "--tls-ca or KERNELDYNO_TLS_CA" in text
    assert "is the service running" not in text


async def test_a_missing_client_certificate_is_asked_for(ca: Authority, server: Pair) -> None:
    async with serve(encryption=ServerTls(server.cert, server.key, ca.cert)) as served:
        text = await told(served.address, tls_ca=ca.cert)
    assert "asks for a client certificate" in text
    assert "--tls-cert and --tls-key" in text


async def test_a_client_certificate_of_another_ca_is_said_to_be_refused(
    ca: Authority, server: Pair, tmp_path: Path
) -> None:
    other = Authority(tmp_path).issue("client")
    async with serve(encryption=ServerTls(server.cert, server.key, ca.cert)) as served:
        text = await told(served.address, tls_ca=ca.cert, tls_cert=other.cert, tls_key=other.key)
    assert "refuses the client's certificate" in text


async def test_a_certificate_that_does_not_fit_is_named(ca: Authority, server: Pair, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    async with serve(encryption=ServerTls(server.cert, server.key)) as served:
        assert "the CA that you gave did not sign it" in await told(served.address, tls_ca=stranger.cert)
    other = ca.issue("other", host="DNS:elsewhere.example")
    async with serve(encryption=ServerTls(other.cert, other.key)) as served:
        assert "certificate is for another host name" in await told(served.address, tls_ca=ca.cert)


async def test_tls_that_the_service_does_not_use(ca: Authority) -> None:
    async with serve() as served:
        assert "it does not use TLS, and you do" in await told(served.address, tls_ca=ca.cert)


async def test_nobody_there_and_a_port_of_http() -> None:
    assert "nothing listens there; is the service running? `kerneldyno up`" in await told(NOBODY)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as http:
        port = http.sockets[0].getsockname()[1]
        assert "not a gRPC service; it may be the port of metrics" in await told(f"127.0.0.1:{port}")


@asynccontextmanager
async def another_service() -> AsyncIterator[str]:
    """Run one of our gRPC servers that is not a scheduler: it has the service name of an evaluator."""
    name = evaluator_service_pb2.DESCRIPTOR.services_by_name["EvaluatorService"].full_name
    server = serving.make_server(ServerInterceptor(CollectorRegistry()))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {}),))
    address = serving.listen(server, serving.Address("127.0.0.1", 0))
    await server.start()
    try:
        yield str(address)
    finally:
        await server.stop(0)


async def test_an_evaluators_address_is_said_to_be_no_scheduler() -> None:
    async with another_service() as address, AsyncClient(address) as client:
        with pytest.raises(WrongServiceError, match=r"not a scheduler.* it may be an evaluator"):
            await client.capabilities()
        with pytest.raises(WrongServiceError, match="it may be an evaluator"):
            async for _ in client.evaluate([EvalRequest(id="one")]):
                pass
        ran = await run("evaluations", "--address", address)
    assert (ran.status, ran.err.count("\n")) == (3, 1), ran.err
    assert "it may be an evaluator" in ran.err


BAD = {
    "http://127.0.0.1:50051": "is a URL, not the address of a gRPC service: give HOST:PORT, without http://",
    "grpc://127.0.0.1:50051": "without grpc://",
    "127.0.0.1": "give HOST:PORT, as in 127.0.0.1:50051",
    "localhost:": "give HOST:PORT",
    "localhost:http": "give HOST:PORT",
    "localhost:0": "give HOST:PORT",
    "localhost:65536": "give HOST:PORT",
    "": "give HOST:PORT",
    "::1:50051": "in brackets, as in [::1]:50051",
}


@pytest.mark.parametrize("address", BAD)
async def test_what_is_no_address_is_refused_before_it_is_dialled(address: str) -> None:
    with pytest.raises(AddressError) as error:
        await AsyncClient(address).__aenter__()
    assert BAD[address] in str(error.value)


def test_targets_of_grpc_are_let_through() -> None:
    for target in ("dns:///localhost:1", "unix:/tmp/socket", "unix:///tmp/socket", "ipv4:127.0.0.1:1"):
        assert channel.target(target) == target
    assert channel.target("[::1]:50051") == "dns:///[::1]:50051"


async def test_commands_refuse_what_is_no_address() -> None:
    ran = await run("describe", "--address", "http://127.0.0.1:50051")
    assert (ran.status, ran.err.count("\n")) == (2, 1), ran.err
    assert "without http://" in ran.err
    doctor = await run("doctor", "--json", "--no-canary", "--address", "localhost")
    (check,) = [check for check in doctor.json if check["name"] == "scheduler"]
    assert (check["state"], "give HOST:PORT" in check["detail"]) == ("failed", True)
    evaluator = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.evaluator", "--devices", "cpu", "--scheduler", "http://127.0.0.1:50051"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(evaluator.communicate(), 60)
    assert (evaluator.returncode, b"without http://" in err) == (2, True), err


async def test_up_on_a_used_port_says_so_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = await run("up", "--listen", f"127.0.0.1:{port}", "--metrics", "off", "--evaluator-metrics", "off")
    assert ran.status == 3
    assert ran.err.count("event=settings") == 1
    last = ran.err.splitlines()[-1]
    assert last.startswith("kerneldyno: the scheduler ended with status 1: cannot listen on")
    assert "a service is already there; stop it, or choose another port" in last


async def test_a_scheduler_that_died_is_not_taken_for_one_with_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with scheduler_process(port) as process, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.capabilities()
        process.kill()
        await process.wait()
        with pytest.raises(UnavailableError, match="is the service running"):
            await client.capabilities()
