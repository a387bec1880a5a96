"""Files of tokens, and settings with which servers refuse to start; the two servers as processes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from pathlib import Path

import pytest

from kerneldyno.evaluator.server.settings import SettingsError, load
from kerneldyno.rpc import tokens
from kerneldyno.rpc.credentials import Credentials
from kerneldyno.rpc.errors import CredentialsError
from kerneldyno.rpc.roles import Role
from kerneldyno.rpc.security import ServerSecurity
from kerneldyno.rpc.tls import ServerTls
from kerneldyno.rpc.tokens import Principal
from kerneldyno.scheduler.settings import Settings

TOKEN = "a-token-of-tests-0123456789"
OTHER = "another-token-0123456789"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def entry(*lines: str, name: str = "trainer", secret: str = f'token = "{TOKEN}"', roles: str = '["submit"]') -> str:
    return "\n".join(("[[token]]", f'name = "{name}"', secret, f"roles = {roles}", *lines, ""))


def written(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "tokens.toml"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def refused(folder: Path, text: str, mode: int = 0o600) -> str:
    with pytest.raises(CredentialsError) as error:
        tokens.load(written(folder, text, mode), {})
    assert TOKEN not in str(error.value)
    return str(error.value)


def test_a_file_says_all_about_an_owner(tmp_path: Path) -> None:
    limits = ("weight = 2.5", "max_queued = 10", "requests_per_second = 3")
    text = entry(*limits, roles='["submit", "read"]') + entry(
        *limits, secret=f'token = "{OTHER}"', roles='["read", "submit"]'
    )
    known = tokens.load(written(tmp_path, text), {tokens.TOKENS_VARIABLE: " ops:operate+read:an-operator-0123456789 ,"})
    trainer = Principal("trainer", Role.SUBMIT | Role.READ, 2.5, 10, 3)
    assert known.find(TOKEN) == known.find(OTHER) == trainer, "an owner may have two tokens: the old and the new"
    assert known.find("an-operator-0123456789") == Principal("ops", Role.OPERATE | Role.READ)
    assert known.find(TOKEN + "x") is known.find("") is None
    assert known.names() == ["ops", "trainer"]
    assert not tokens.load(None, {})


def test_everybody_may_read_digests_but_no_token(tmp_path: Path) -> None:
    known = tokens.load(written(tmp_path, entry(secret=f'sha256 = "{DIGEST.upper()}"'), 0o644), {})
    assert known.find(TOKEN) == Principal("trainer", Role.SUBMIT)
    assert known.find(DIGEST) is None, "the digest is not the token"
    message = refused(tmp_path, entry(), 0o644)
    assert f"chmod 600 {tmp_path}/tokens.toml" in message
    assert "sha256 instead" in message
    assert tokens.load(written(tmp_path, entry(), 0o640), {}), "a group may be what the service runs as"
    assert "chmod o-w" in refused(tmp_path, entry(secret=f'sha256 = "{DIGEST}"'), 0o646)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "at least one"),
        ("[[token", "is not TOML"),
        ("token = 3", "[[token]]"),
        ("token = [3]", "not a table"),
        (entry() + "[other]\n", "nothing else"),
        (entry("colour = 3"), "unknown keys: colour"),
        (entry(secret=""), "either sha256"),
        (entry(f'sha256 = "{DIGEST}"'), "either sha256"),
        (entry(secret='token = "short"'), "token_urlsafe"),
        (entry(secret='token = "with spaces, and a comma"'), "no space, no comma"),
        (entry(secret='sha256 = "12"'), "sha256sum"),
        (entry(secret="sha256 = 12"), "sha256sum"),
        (entry(name=""), "name must have"),
        (entry(name="a b"), "name must have"),
        (entry(roles="[]"), "submit, operate, node, read"),
        (entry(roles='["root"]'), "submit, operate, node, read"),
        (entry(roles='"submit"'), "submit, operate, node, read"),
        (entry(roles="[[]]"), "submit, operate, node, read"),
        (entry("weight = 0"), "weight must be a number above 0"),
        (entry("weight = true"), "weight must be a number"),
        (entry("weight = nan"), "weight must be a number"),
        (entry("weight = inf"), "weight must be a number"),
        (entry("max_queued = 1.5"), "max_queued must be a whole number"),
        (entry("requests_per_second = -1"), "requests_per_second must be a number"),
        (entry() + entry(name="other"), "listed twice"),
        (entry() + entry("weight = 2", secret=f'token = "{OTHER}"'), "differ in roles or limits"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_entry(tmp_path: Path, text: str, word: str) -> None:
    assert word in refused(tmp_path, text)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="No such file"):
        tokens.load(str(tmp_path / "none"), {})
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialsError, match="not a text file"):
        tokens.load(str(tmp_path / "binary"), {})


@pytest.mark.parametrize(
    "text", ["trainer", "trainer:submit", f"trainer::{TOKEN}", f"trainer:root:{TOKEN}", f":submit:{TOKEN}"]
)
def test_a_wrong_environment_is_refused(text: str) -> None:
    with pytest.raises(CredentialsError, match="KERNELDYNO_TOKENS: token 1") as error:
        tokens.load(None, {tokens.TOKENS_VARIABLE: text})
    assert TOKEN not in str(error.value)


# Ports that other machines can reach


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "scheduler.example:0"])
def test_nothing_is_open_to_others_without_tls_unless_said_so(address: str) -> None:
    encrypted = ServerSecurity(ServerTls("cert", "key"))
    with pytest.raises(CredentialsError, match=r"--listen .* give --tls-cert and --tls-key, or .* --insecure"):
        ServerSecurity().check(address, "off")
    for security in (ServerSecurity(), encrypted):
        with pytest.raises(CredentialsError, match=r"--metrics .* or give --insecure"):
            security.check("127.0.0.1:0", address)
    encrypted.check(address, "off")
    ServerSecurity(insecure=True).check(address, address)


def test_this_machine_is_open_to_itself() -> None:
    for address in ("127.0.0.1:0", "localhost:0", "[::1]:0", "127.0.0.2:5"):
        ServerSecurity().check(address, address)
    for security in (ServerSecurity(), ServerSecurity(insecure=True)):
        with pytest.raises(ValueError, match="HOST:PORT"):
            security.check("nowhere", "off")


def test_an_open_port_without_tokens_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ServerSecurity().gate("127.0.0.1:0", {})
    assert not caplog.records
    ServerSecurity(ServerTls("cert", "key")).gate("0.0.0.0:0", {})
    ServerSecurity(ServerTls("cert", "key", "ca")).gate("0.0.0.0:0", {})
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "who reaches it" in caplog.messages[0]
    assert "with a certificate of the client CA" in caplog.messages[1]
    caplog.clear()
    ServerSecurity().gate("0.0.0.0:0", {tokens.TOKENS_VARIABLE: f"trainer:submit:{TOKEN}"})
    assert caplog.messages == ["event=tokens principals=trainer"]


async def ended(module: str, *options: str, **environment: str) -> tuple[int | None, str]:
    """Return the exit status and standard error of a server that does not start."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"kerneldyno.{module}", *options),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        _, err = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "Traceback" not in err.decode()
    return process.returncode, err.decode()


def test_both_servers_check_what_they_are_told(tmp_path: Path) -> None:
    token = written(tmp_path, TOKEN, 0o604)
    for options, word in (
        (["--listen=0.0.0.0:0"], "--insecure"),
        (["--metrics=0.0.0.0:0"], "--insecure"),
        (["--tls-cert=cert"], "both --tls-cert and --tls-key"),
        (["--scheduler-tls-cert=cert", "--scheduler-tls-ca=ca"], "both, or neither"),
        ([f"--token-file={token}"], "chmod 600"),
    ):
        with pytest.raises(SettingsError, match=word):
            load(["--devices=cpu", *options], {})
    opened = load(["--devices=cpu", "--listen=0.0.0.0:0", "--insecure"], {"KERNELDYNO_TOKEN": TOKEN})
    assert opened.credentials == Credentials(token=TOKEN)
    assert TOKEN not in str(opened)
    for addresses in ({"listen": "0.0.0.0:0"}, {"metrics": "0.0.0.0:0"}):
        with pytest.raises(CredentialsError, match="--insecure"):
            Settings(**addresses)
        Settings(**addresses, security=ServerSecurity(insecure=True))


@pytest.mark.parametrize("module", ["scheduler", "evaluator"])
async def test_servers_refuse_to_start_and_say_what_to_do(module: str, tmp_path: Path) -> None:
    common = ("--metrics=off", *(("--devices=cpu",) if module == "evaluator" else ("--store=memory",)))
    (first, first_said), (second, second_said) = await asyncio.gather(
        ended(module, *common, "--listen=0.0.0.0:0"),
        ended(module, *common, "--listen=127.0.0.1:0", f"--tokens={written(tmp_path, entry(), 0o644)}"),
    )
    assert first == 2
    assert "give --tls-cert and --tls-key" in first_said
    assert second in (1, 2)
    assert "chmod 600" in second_said
