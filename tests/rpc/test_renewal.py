"""Certificates and tokens renewed while a scheduler runs: new connections and calls use them, open ones go on."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.errors import PermissionDeniedError, UnauthenticatedError
from kerneldyno.rpc import channel
from kerneldyno.rpc.credentials import Credentials
from tests.rpc.certificates import Authority, Pair
from tests.waiting import eventually

OLD, NEW = "the-old-token-0123456789", "the-new-token-0123456789"


@asynccontextmanager
async def running(*options: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Start a scheduler process; yield its address, and the lines of its log so far."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.scheduler", "--listen=127.0.0.1:0", "--metrics=off", "--store=memory"),
        *("--exit-with-parent", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    log: list[str] = []

    async def read(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            log.append(line.decode())

    reading = asyncio.create_task(read(process.stderr))
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        yield line.split("grpc=")[1].split()[0], log
    finally:
        process.kill()
        await process.wait()
        await reading


def said(log: list[str], word: str) -> bool:
    return any(word in line for line in log)


async def accepts(address: str, authority: Authority) -> bool:
    """Return whether a new connection gets a certificate of `authority`."""
    async with channel.open(address, Credentials(tls_ca=authority.cert), own_connection=True) as connection:
        try:
            await asyncio.wait_for(connection.channel_ready(), 5)
        except TimeoutError:
            return False
        return True


def install(pair: Pair, folder: Path) -> None:
    """Write certificate and key to where the server reads them, one after the other."""
    shutil.copy(pair.cert, folder / "server.pem")
    key = folder / "server.key"
    key.touch(mode=0o600)
    shutil.copyfile(pair.key, key)


async def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_go_on(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    install(old.issue("first"), tmp_path)
    files = (f"--tls-cert={tmp_path / 'server.pem'}", f"--tls-key={tmp_path / 'server.key'}")
    async with running(*files) as (address, log), AsyncClient(address, tls_ca=old.cert) as client:
        assert (await client.capabilities()).version
        assert (await accepts(address, old), await accepts(address, new)) == (True, False)
        shutil.copy(new.cert, tmp_path / "server.pem")  # it does not match the key there
        assert await accepts(address, old), "files of no use change nothing"
        await eventually(lambda: said(log, "event=certificate_kept"))
        install(new.issue("second"), tmp_path)
        assert (await accepts(address, new), await accepts(address, old)) == (True, False)
        assert said(log, "event=certificate_renewed")
        assert (await client.capabilities()).version, "it goes on over the connection that it has"


async def test_an_edited_file_of_tokens_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELDYNO_TOKENS", raising=False)
    path = tmp_path / "tokens.toml"

    def write(text: str) -> None:
        draft = tmp_path / "draft"
        draft.touch(mode=0o600)
        draft.write_text(text)
        os.replace(draft, path)

    def entry(token: str, roles: str, more: str = "") -> str:
        return f'[[token]]\nname = "trainer"\ntoken = "{token}"\nroles = ["{roles}"]\n{more}'

    async def answer(address: str, token: str) -> str:
        async with AsyncClient(address, token=token) as client:
            try:
                await client.drain("nobody")
            except (UnauthenticatedError, PermissionDeniedError) as error:
                return type(error).__name__
            except Exception as error:
                return str(error)
        return "drained"

    write(entry(OLD, "read"))
    async with running(f"--tokens={path}") as (address, log):
        assert await answer(address, OLD) == "PermissionDeniedError"
        assert await answer(address, NEW) == "UnauthenticatedError"
        write("[[token]]\nnonsense = 1\n")
        async with asyncio.timeout(60):
            while not said(log, "event=tokens_kept"):
                assert await answer(address, OLD) == "PermissionDeniedError", "a file of no use changes nothing"
                await asyncio.sleep(0.1)
        write(entry(NEW, "operate"))
        async with asyncio.timeout(60):
            while await answer(address, OLD) != "UnauthenticatedError":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert "no node 'nobody'" in await answer(address, NEW)
        assert said(log, "event=tokens_renewed principals=trainer")
        assert not said(log, NEW)
