"""Tests of what a gateway refuses: browsers, other hosts, other content, large bodies; and where it may listen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kerneldyno.gateway.guard import Limits
from kerneldyno.gateway.server import check_address
from kerneldyno.rpc.errors import CredentialsError
from tests.gateway.gateway_harness import gateway, response

BODY = {"prompt": "p", "response": response(), "label": "first"}


async def test_web_pages_are_refused() -> None:
    async with gateway() as served:
        page = await served.http.post("/rm", json=BODY, headers={"Origin": "https://example.com"})
        simple = await served.http.post("/rm", content=json.dumps(BODY), headers={"Content-Type": "text/plain"})
        rebound = await served.http.post("/rm", json=BODY, headers={"Host": "attacker.example:80"})
        nameless = await served.http.get("/health", headers={"Host": ""})
        local = await served.http.post("/rm", json=BODY, headers={"Host": "localhost:1"})
        preflight = await served.http.options("/rm", headers={"Origin": "https://example.com"})
        assert len(served.node.started) == 1
    assert [a.status_code for a in (page, simple, rebound, nameless, local, preflight)] == [
        403,
        415,
        403,
        403,
        200,
        403,
    ]
    assert "access-control-allow-origin" not in preflight.headers


async def test_web_pages_get_no_websocket() -> None:
    async with gateway() as served:
        url = served.url.replace("http", "ws") + "/ws"
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with connect(url, origin="https://example.com", proxy=None) as socket:  # type: ignore[arg-type]
                await socket.recv()


async def test_bodies_are_limited_whether_or_not_they_tell_their_length() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 4096

    async with gateway({"limits": Limits(max_body_bytes=64 << 10)}) as served:
        told = await served.http.post("/rm", content=b"x" * 70_000, headers={"Content-Type": "application/json"})
        untold = await served.http.post("/rm", content=parts(), headers={"Content-Type": "application/json"})
        assert (await served.rm(response(), "first")).status_code == 200, "and it goes on"
    assert (told.status_code, untold.status_code) == (413, 413)


BROKEN = [b"", b"{", b"[]", b'"text"', b"null", b"[" * 100_000, b"\xff\xfe", b'{"a": ' + b"9" * 5000 + b"}"]


@pytest.mark.parametrize("path", ["/rm", "/get_reward", "/evaluate", "/evaluate/batch", "/step"])
async def test_bodies_that_are_no_object_are_400(path: str) -> None:
    async with gateway() as served:
        for raw in BROKEN:
            answer = await served.http.post(path, content=raw, headers={"Content-Type": "application/json"})
            assert answer.status_code == 400, raw[:20]
            assert answer.json()["message"]


async def test_other_methods_and_paths() -> None:
    async with gateway() as served:
        answers = [
            await served.http.get("/rm"),
            await served.http.get("/nothing"),
            await served.http.post("/rm?form=poem", json=BODY),
        ]
    assert [answer.status_code for answer in answers] == [405, 404, 400]
    assert answers[0].headers["Allow"] == "POST"
    assert [answer.json()["error_code"] for answer in answers] == ["VALIDATION_ERROR"] * 3
    assert "GET /rm" in answers[0].json()["message"]


async def test_a_defect_has_the_form_of_every_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("kerneldyno.gateway.labels.Labels.problem", fail)
    async with gateway() as served:
        answer = await served.http.post("/rm", json=BODY)
    assert (answer.status_code, answer.json()["error_code"]) == (500, "SYSTEM_ERROR")
    assert "ZeroDivisionError" in answer.json()["message"]
    assert "secret" not in answer.text


async def test_other_hosts_with_insecure() -> None:
    async with gateway({"loopback_only": False}) as served:
        answer = await served.http.post("/rm", json=BODY, headers={"Host": "gpu-box:8080"})
        page = await served.http.post(
            "/rm", json=BODY, headers={"Host": "gpu-box:8080", "Origin": "http://gpu-box:8080"}
        )
    assert (answer.status_code, page.status_code) == (200, 403)


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:1", "gpu-box:8080"])
def test_other_addresses_need_insecure(listen: str) -> None:
    with pytest.raises(CredentialsError, match="--insecure"):
        check_address(listen, insecure=False)
    assert check_address(listen, insecure=True)[1] in (8080, 1)


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert check_address(listen, insecure=False)[1] == 8080


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", ":8080", ""])
def test_no_address(listen: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        check_address(listen, insecure=False)


async def test_garbage_on_the_port_harms_nobody() -> None:
    async with gateway() as served:
        port = int(served.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x01\x02 nonsense\r\n\r\n")
        await writer.drain()
        assert b"400" in await reader.read(100)
        writer.close()
        assert isinstance(await served.http.get("/health"), httpx.Response)
        assert (await served.rm(response(), "first")).status_code == 200
