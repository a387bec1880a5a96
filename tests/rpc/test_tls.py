"""TLS and client certificates, over real sockets with real certificates; and files that are refused at the start."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from kerneldyno.rpc import channel, serving
from kerneldyno.rpc.credentials import NONE, PUBLIC_ROOTS, Credentials
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.interceptor import ServerInterceptor
from kerneldyno.rpc.tls import ServerTls
from tests.rpc.certificates import Authority, Pair
from tests.rpc.open_services import call, serve

METHOD = "/kerneldyno.v1.SchedulerService/GetCapabilities"
STREAM = "/kerneldyno.v1.SchedulerService/Evaluate"
OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA that nobody here trusts. It has the same name as `ca`, as an impostor's CA would have."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def server(ca: Authority) -> Pair:
    return ca.issue("server")


@pytest.fixture(scope="module")
def client(ca: Authority) -> Pair:
    return ca.issue("client", host="DNS:a-client")


async def reach(encryption: ServerTls | None, credentials: Credentials) -> grpc.StatusCode:
    """Return the status of a call by a client with `credentials` to such a server."""
    async with serve(encryption=encryption) as served, served.dial(credentials) as peer:
        return await call(peer, METHOD)


def certified(ca: Authority, pair: Pair) -> Credentials:
    return Credentials(tls_ca=ca.cert, tls_cert=pair.cert, tls_key=pair.key)


async def test_a_server_that_the_ca_knows_is_reached_in_every_shape_of_call(ca: Authority, server: Pair) -> None:
    encryption = ServerTls(server.cert, server.key)
    async with serve(encryption=encryption) as served, served.dial(Credentials(tls_ca=ca.cert)) as peer:
        assert await call(peer, METHOD) is OK
        assert await call(peer, STREAM, messages=3) is OK


async def test_a_server_of_another_ca_is_not_spoken_to(ca: Authority, stranger: Authority, server: Pair) -> None:
    impostor = stranger.issue("server")
    assert await reach(ServerTls(impostor.cert, impostor.key), Credentials(tls_ca=ca.cert)) is UNAVAILABLE
    assert await reach(ServerTls(server.cert, server.key), Credentials(tls_ca=stranger.cert)) is UNAVAILABLE
    assert await reach(ServerTls(server.cert, server.key), Credentials(tls_ca=PUBLIC_ROOTS)) is UNAVAILABLE


async def test_an_expired_certificate_is_refused_on_either_side(ca: Authority, server: Pair, client: Pair) -> None:
    old = ca.issue("old", days=-1)
    assert await reach(ServerTls(old.cert, old.key), Credentials(tls_ca=ca.cert)) is UNAVAILABLE
    mutual = ServerTls(server.cert, server.key, ca.cert)
    assert await reach(mutual, certified(ca, old)) is UNAVAILABLE
    assert await reach(mutual, certified(ca, client)) is OK, "or the two above prove nothing"


async def test_a_certificate_for_another_host_is_refused(ca: Authority) -> None:
    other = ca.issue("other", host="DNS:elsewhere.example")
    assert await reach(ServerTls(other.cert, other.key), Credentials(tls_ca=ca.cert)) is UNAVAILABLE


async def test_a_client_needs_a_certificate_where_one_is_asked_for(
    ca: Authority, stranger: Authority, server: Pair
) -> None:
    mutual = ServerTls(server.cert, server.key, ca.cert)
    assert await reach(mutual, Credentials(tls_ca=ca.cert)) is UNAVAILABLE
    assert await reach(mutual, certified(ca, stranger.issue("client"))) is UNAVAILABLE


async def test_tls_and_plain_text_do_not_meet(ca: Authority, server: Pair) -> None:
    assert await reach(ServerTls(server.cert, server.key), NONE) is UNAVAILABLE
    assert await reach(None, Credentials(tls_ca=ca.cert)) is UNAVAILABLE


def refused(encryption: ServerTls) -> str:
    """Return why a server does not start with `encryption`."""
    server = serving.make_server(ServerInterceptor(CollectorRegistry()))
    with pytest.raises(CredentialsError) as error:
        serving.listen(server, serving.Address("127.0.0.1", 0), encryption)
    return str(error.value)


async def test_files_that_cannot_be_used_are_refused_at_the_start(
    ca: Authority, server: Pair, client: Pair, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnot one\n-----END CERTIFICATE-----\n")
    binary = tmp_path / "binary.pem"
    binary.write_bytes(b"\xff\x00\xfe")
    open_key = tmp_path / "open.key"
    shutil.copyfile(server.key, open_key)
    open_key.chmod(0o644)
    locked = ca.issue("locked", passphrase="sesame")
    assert "cannot read a certificate from /none.pem" in refused(ServerTls("/none.pem", server.key))
    assert "not a text file" in refused(ServerTls(str(binary), server.key))
    assert "cannot be used for TLS" in refused(ServerTls(str(garbage), server.key))
    assert "the key does not match the certificate" in refused(ServerTls(server.cert, client.key))
    assert "without a passphrase" in refused(ServerTls(locked.cert, locked.key))
    assert f"chmod 600 {open_key}" in refused(ServerTls(server.cert, str(open_key)))
    assert "no CA certificate" in refused(ServerTls(server.cert, server.key, str(garbage)))
    open_cert = tmp_path / "open.pem"
    shutil.copyfile(server.cert, open_cert)
    open_cert.chmod(0o666)
    assert f"chmod o-w {open_cert}" in refused(ServerTls(str(open_cert), server.key))


def test_options_that_do_not_go_together_are_refused() -> None:
    assert ServerTls.of(None, None, None) is None
    for some in (("cert", None, None), (None, "key", None), (None, None, "ca"), ("cert", None, "ca")):
        with pytest.raises(CredentialsError, match="--tls-cert and --tls-key"):
            ServerTls.of(*some)
    with pytest.raises(CredentialsError, match="both, or neither"):
        Credentials(tls_ca="ca", tls_cert="cert")
    with pytest.raises(CredentialsError, match="tls_ca"):
        Credentials(tls_cert="cert", tls_key="key")


async def test_a_client_is_told_of_files_of_no_use_before_it_dials(ca: Authority, server: Pair, client: Pair) -> None:
    with pytest.raises(CredentialsError, match="cannot read CA certificates from /none"):
        channel.open("127.0.0.1:1", Credentials(tls_ca="/none"))
    with pytest.raises(CredentialsError, match="the key does not match the certificate"):
        channel.open("127.0.0.1:1", Credentials(tls_ca=ca.cert, tls_cert=client.cert, tls_key=server.key))
