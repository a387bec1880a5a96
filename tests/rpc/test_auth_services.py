"""The services as processes with certificates and tokens: scheduler, evaluator, client and command line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.errors import PermissionDeniedError, UnauthenticatedError, UnavailableError
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from tests.rpc.certificates import Authority, Pair

EVALUATOR = str(Path(__file__).parent.parent / "evaluator" / "fake_evaluator.py")
TOKENS = {name: f"the-token-of-{name}-0123456789" for name in ("submit", "operate", "node", "read")}


class Place:
    """A folder with a CA, certificates, and a file for each token."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.scheduler, self.node, self.user = (self.authority.issue(name) for name in ("scheduler", "node", "user"))
        self.tokens = self._private(
            folder / "tokens.toml",
            "".join(f'[[token]]\nname = "{name}"\ntoken = "{t}"\nroles = ["{name}"]\n' for name, t in TOKENS.items()),
        )
        self.token_files = {name: self._private(folder / f"{name}.token", token) for name, token in TOKENS.items()}

    def client(self, address: str, token: str, pair: Pair | None = None) -> AsyncClient:
        shown = pair or self.user
        return AsyncClient(address, tls_ca=self.authority.cert, tls_cert=shown.cert, tls_key=shown.key, token=token)

    @staticmethod
    def _private(path: Path, text: str) -> str:
        path.write_text(text)
        path.chmod(0o600)
        return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@asynccontextmanager
async def started(*command: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Start a server process; yield its address, and the lines of its log so far."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []

    async def read(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            lines.append(line.decode())

    reading = asyncio.create_task(read(process.stderr))
    try:
        ready = (await asyncio.wait_for(process.stdout.readline(), 90)).decode().split()
        assert ready[1:2] == ["ready"], "".join(lines)
        yield ready[2].removeprefix("grpc="), lines
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@asynccontextmanager
async def guarded_scheduler(place: Place) -> AsyncIterator[tuple[str, list[str]]]:
    listen = ("--listen=127.0.0.1:0", "--metrics=off", "--store=memory", "--exit-with-parent")
    tls = (f"--tls-cert={place.scheduler.cert}", f"--tls-key={place.scheduler.key}")
    guards = (f"--tls-client-ca={place.authority.cert}", f"--tokens={place.tokens}")
    async with started("-m", "kerneldyno.scheduler", *listen, *tls, *guards) as scheduler:
        yield scheduler


@asynccontextmanager
async def guarded_evaluator(place: Place, scheduler: str, token: str) -> AsyncIterator[list[str]]:
    listen = (
        "--listen=127.0.0.1:0",
        "--metrics=off",
        "--devices=cpu",
        "--lanes=1",
        "--node-id=n1",
        "--exit-with-parent",
    )
    tls = (
        f"--scheduler-tls-ca={place.authority.cert}",
        f"--scheduler-tls-cert={place.node.cert}",
        f"--scheduler-tls-key={place.node.key}",
    )
    shown = (f"--scheduler={scheduler}", *tls, f"--token-file={place.token_files[token]}")
    async with started(EVALUATOR, *listen, *shown) as (_, lines):
        yield lines


async def until_said(lines: list[str], *words: str) -> str:
    async with asyncio.timeout(60):
        while not (found := [line for line in lines if all(word in line for word in words)]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found[0]


async def test_a_fleet_behind_certificates_and_tokens(place: Place) -> None:
    async with guarded_scheduler(place) as (address, log):
        async with guarded_evaluator(place, address, "node") as node_log:
            await until_said(node_log, "event=registered")
            work = [EvalRequest(id=str(n), reference_code="ref", kernel_code="result CORRECT") for n in range(3)]
            async with place.client(address, TOKENS["submit"]) as submitter:
                found = [result.outcome async for result in submitter.evaluate(work, timeout=60)]
                assert found == [EvalResult.CORRECT] * 3
            async with place.client(address, TOKENS["read"]) as reader:
                assert [node.node_id for node in await reader.nodes()] == ["n1"]
                with pytest.raises(PermissionDeniedError, match="operate"):
                    await reader.drain("n1")
                with pytest.raises(PermissionDeniedError, match="Evaluate needs the role submit"):
                    await anext(reader.evaluate(work, timeout=60))
                assert not (await reader.validate(work[0])).violations
                with pytest.raises(PermissionDeniedError, match="only submit may have native code compiled"):
                    await reader.validate(work[0], compile=True)
            async with place.client(address, TOKENS["operate"]) as operator:
                assert (await operator.drain("n1")).drained
            assert 'method=DrainNode node="n1" result=PERMISSION_DENIED' in await until_said(
                log, "event=audit principal=read"
            )
            assert 'method=DrainNode node="n1" result=OK' in await until_said(log, "event=audit principal=operate")
            async with place.client(address, "") as nobody:
                with pytest.raises(UnauthenticatedError, match="KERNELDYNO_TOKEN"):
                    await nobody.nodes()
        async with AsyncClient(address, tls_ca=place.authority.cert, token=TOKENS["read"]) as uncertified:
            with pytest.raises(UnavailableError):
                await uncertified.nodes()
        everything = "".join(log + node_log)
        assert "principals=node,operate,read,submit" in everything
        assert not any(token in everything for token in TOKENS.values())


async def test_a_node_without_the_role_does_not_get_in(place: Place) -> None:
    async with guarded_scheduler(place) as (address, log), guarded_evaluator(place, address, "submit") as node_log:
        await until_said(node_log, "event=synchronize_failed", "PERMISSION_DENIED")
        await until_said(log, "event=call_refused", "method=Synchronize", "principal=submit")
        async with place.client(address, TOKENS["read"]) as reader:
            assert await reader.nodes() == []


async def command(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNELDYNO_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kerneldyno.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, **environment},
    )
    out, err = await asyncio.wait_for(process.communicate(), 170)
    assert "Traceback" not in err.decode()
    return process.returncode, out.decode(), err.decode()


async def test_commands_take_credentials_from_options_and_environment(place: Place) -> None:
    async with guarded_scheduler(place) as (address, _):
        where = ("describe", "--address", address)
        certified = ("--tls-ca", place.authority.cert, "--tls-cert", place.user.cert, "--tls-key", place.user.key)
        in_environment = {
            "KERNELDYNO_TLS_CA": place.authority.cert,
            "KERNELDYNO_TLS_CERT": place.user.cert,
            "KERNELDYNO_TLS_KEY": place.user.key,
        }
        by_option, nobody, in_the_clear = await asyncio.gather(
            command(*where, *certified, "--token-file", place.token_files["read"], KERNELDYNO_TOKEN="overridden"),
            command(*where, **in_environment),
            command("describe", "--address", "10.0.0.1:1", KERNELDYNO_TOKEN=TOKENS["read"]),
        )
    assert by_option[0] == 0, by_option
    assert "No evaluator is registered" in by_option[1]
    assert nobody[0] == 1
    assert "a token is needed" in nobody[2], "so the certificate was good"
    assert in_the_clear[0] == 2
    assert "unencrypted" in in_the_clear[2]


async def test_local_services_need_nothing_of_what_the_environment_says(place: Place) -> None:
    status, out, err = await command(
        *("describe", "--local", "--devices", "cpu", "--sandbox", "off"),
        KERNELDYNO_TLS_CA=place.authority.cert,
        KERNELDYNO_TOKEN=TOKENS["read"],
        KERNELDYNO_TOKENS=f"somebody:read:{TOKENS['submit']}",
    )
    assert status == 0, err
    assert "cpu:0" in out


async def test_the_sandbox_of_a_fleet_with_tls_is_seen_without_reaching_its_nodes(place: Place) -> None:
    credentials = {
        "KERNELDYNO_TLS_CA": place.authority.cert,
        "KERNELDYNO_TLS_CERT": place.user.cert,
        "KERNELDYNO_TLS_KEY": place.user.key,
        "KERNELDYNO_TOKEN_FILE": place.token_files["read"],
    }
    async with guarded_scheduler(place) as (address, _), guarded_evaluator(place, address, "node") as node_log:
        await until_said(node_log, "event=registered")
        for command, line in (
            (("describe",), "pid_namespace: active; fake"),
            (("doctor", "--no-canary"), "all layers are active"),
        ):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kerneldyno.cli", *command, "--address", address),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **credentials},
            )
            out, _ = await asyncio.wait_for(process.communicate(), 120)
            assert line in out.decode(), f"{command}: {out.decode()}"
