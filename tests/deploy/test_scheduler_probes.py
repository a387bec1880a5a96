"""Two schedulers with the options and variables of their pods, a PostgreSQL, and the probes that Kubernetes would run."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kerneldyno.client import AsyncClient
from kerneldyno.deploy import health
from kerneldyno.deploy.supervisor import Supervisor
from kerneldyno.scheduler.__main__ import STORE_VARIABLE
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import EvalResult
from tests.deploy.deploy_files import value
from tests.deploy.supervised import ready
from tests.deploy.test_two_schedulers import CONTAINER
from tests.postgres import PostgresServer
from tests.rpc.certificates import Authority
from tests.scheduler.scheduler_harness import request
from tests.waiting import eventually, free_port, wait_until

TOKENS = """[[token]]
name = "node"
token = "0123456789abcdef0123456789abcdef"
roles = ["node"]
"""
#: Where a pod has the CA of the database's certificate.
PATH_OF_CA = "/etc/kerneldyno/database/ca.crt"


@dataclass
class Pod:
    """What a container of the component runs, on this machine."""

    store: str
    words: dict[str, str]
    """What is replaced in options and probes, such as paths."""
    tls: bool = True

    def __post_init__(self) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process = self.start()

    def start(self) -> Supervisor:
        """Start the scheduler."""
        given = {one["name"]: one["value"] for one in CONTAINER["env"] if "value" in one}
        variables = {name: self.words.get(word, word) for name, word in given.items()}
        environment = {**os.environ, **variables, STORE_VARIABLE: f"{self.store}\n"}  # as a file's content ends
        return Supervisor("scheduler", sys.executable, self.here(CONTAINER["args"]), environ=environment)

    def here(self, arguments: list[str]) -> list[str]:
        """Return a command's arguments with the ports and paths of this machine."""
        words = {
            **self.words,
            "0.0.0.0:50051": self.address,
            "127.0.0.1:50051": self.address,
            "0.0.0.0:9464": "127.0.0.1:0",
        }
        if advertise := value(arguments, "--advertise"):
            words[advertise] = self.address
        for before, after in words.items():
            arguments = [word.replace(before, after) for word in arguments]
        return [word for word in arguments if self.tls or not word.startswith(("--tls-", "--tokens"))]

    def passes(self, probe: str) -> bool:
        """Run a probe: startup, readiness or liveness."""
        return self.asks(CONTAINER[f"{probe}Probe"]["exec"]["command"])

    def serves(self) -> bool:
        """Return whether the server as a whole is SERVING."""
        command = CONTAINER["readinessProbe"]["exec"]["command"]
        return self.asks([word for word in command if not word.startswith("--service=")])

    def asks(self, command: list[str]) -> bool:
        return health.main(self.here(command)[3:]) == 0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may stop."""
    started = PostgresServer()
    yield started
    started.close()


def test_a_standby_passes_its_probes_and_is_not_ready_without_a_database(
    server: PostgresServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("scheduler", host="DNS:kerneldyno-scheduler")
    (tmp_path / "tokens.toml").write_text(TOKENS)
    (tmp_path / "tokens.toml").chmod(0o600)
    words = {
        "/etc/kerneldyno/tls/tls.crt": pair.cert,
        "/etc/kerneldyno/tls/tls.key": pair.key,
        "/etc/kerneldyno/tls/ca.crt": authority.cert,
        "/etc/kerneldyno/tokens/tokens.toml": str(tmp_path / "tokens.toml"),
    }
    store = server.schema()
    pods: list[Pod] = []
    try:
        for _ in range(2):
            pods.append(Pod(store, words))
            ready(pods[-1].process)
        standby = pods[1]
        command = [sys.executable, *standby.here(CONTAINER["startupProbe"]["exec"]["command"])[1:]]
        assert subprocess.run(command, timeout=60).returncode == 0  # as the kubelet runs it
        for pod in pods:
            assert all(pod.passes(probe) for probe in ("startup", "readiness", "liveness"))
        assert [pod.serves() for pod in pods] == [True, False]
        assert "or is a standby (which --service readiness allows)" in capfd.readouterr().err
        server.stop(signal.SIGINT)
        for pod in pods:
            wait_until(lambda pod=pod: not pod.passes("readiness"), "not ready without a database")
        assert all(pod.passes("liveness") for pod in pods), "a restart would not bring the database back"
        server.start()
        for pod in pods:
            wait_until(lambda pod=pod: pod.passes("readiness"), "ready again")
        assert [pod.serves() for pod in pods] == [True, False], "nobody took over"
        assert [pod.process.state().restarts for pod in pods] == [0, 0]
    finally:
        for pod in pods:
            pod.process.stop(10)


async def test_a_pod_that_is_told_to_stop_hands_over_running_work_at_once(postgres: PostgresServer) -> None:
    """The one that comes in its place is ready, so an update would go on to the other pod."""
    store = postgres.schema()
    first = Pod(store, {}, tls=False)
    await asyncio.to_thread(ready, first.process)
    second = Pod(store, {}, tls=False)
    both = f"{first.address},{second.address}"
    try:
        await asyncio.to_thread(ready, second.process)
        async with node(both, "n1") as fake, AsyncClient(both) as client:
            call = asyncio.create_task(client.evaluate_once(request("a", "sleep=6")))
            await eventually(lambda: fake.started)
            began = time.monotonic()
            stopping = asyncio.create_task(asyncio.to_thread(first.process.stop, 30))
            await asyncio.to_thread(wait_until, second.serves, "the standby serves")
            lease = float(value(CONTAINER["args"], "--store-lease") or 5)
            assert time.monotonic() - began < lease, "it was told that the role is free"
            assert not call.done(), "nobody waited for the work"
            await stopping
            first.process = first.start()
            await asyncio.to_thread(wait_until, lambda: first.passes("startup"), "the new pod starts")
            assert await asyncio.to_thread(first.passes, "readiness")
            assert not await asyncio.to_thread(first.serves)
            assert (await call).outcome == EvalResult.CORRECT
            assert fake.started == ["a"], "it ran once"
    finally:
        for pod in (first, second):
            await asyncio.to_thread(pod.process.stop, 10)


def test_the_certificate_of_the_database_is_checked(server: PostgresServer, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "theirs")
    pair = ours.issue("database", host="DNS:localhost")
    files = {name: server.data / f"server.{name}" for name in ("crt", "key")}
    for source, target in zip((pair.cert, pair.key), files.values(), strict=True):
        shutil.copy(source, target)
        target.chmod(0o600)
        os.chown(target, server.data.stat().st_uid, server.data.stat().st_gid)
    server.execute("ALTER SYSTEM SET ssl = on")
    server.execute("SELECT pg_reload_conf()")
    options = server.schema().partition("&options=")[2]
    store = f"postgresql://test@localhost:{server.port}/postgres?options={options}"
    trusted, other = ({PATH_OF_CA: authority.cert} for authority in (ours, theirs))
    pod = Pod(store, trusted, tls=False)
    try:
        ready(pod.process)
        sessions = "FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name LIKE 'kerneldyno%'"
        ((count, encrypted),) = server.execute(f"SELECT count(*), bool_and(ssl) {sessions}")
        assert count
        assert encrypted
    finally:
        pod.process.stop(10)
    pod = Pod(store, other, tls=False)
    try:
        wait_until(lambda: pod.process.state().last_end, "its end")
        assert "certificate verify failed" in pod.process.state().last_end
    finally:
        pod.process.stop(10)


def test_help_shows_no_password_of_the_variable() -> None:
    command = [sys.executable, "-m", "kerneldyno.scheduler", "--help"]
    environment = {**os.environ, STORE_VARIABLE: "postgresql://dyno:se%20cret@db/dyno\n"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "postgresql://dyno@db/dyno)" in "".join(done.stdout.split())
    assert "cret" not in done.stdout
