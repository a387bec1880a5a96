"""Tests of services on one machine: the client waits for them, says why they died, and leaves no orphan.

The services here are small programs with the names of the real ones, which they precede on the module path, because
these tests need services that fail. tests/e2e starts the real ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kerneldyno.client import LocalServiceError, LocalServices, local
from tests import ROOT
from tests.client.command import invoke
from tests.family import children, started_since

Install = Callable[[str], None]

SCHEDULER = """
import asyncio, signal, sys
from tests.client.fake_fleet import FakeFleet
print("noise before the ready line")
print("scheduler's log", file=sys.stderr, flush=True)
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with FakeFleet() as scheduler:
        print(f"kerneldyno-scheduler ready grpc={scheduler.address} metrics=off", flush=True)
        await stop.wait()
asyncio.run(main())
"""
#: An evaluator with a child in its own session, as a judge is.
EVALUATOR = """
import signal, subprocess, sys, time
assert "--exit-with-parent" in sys.argv
devices = sys.argv[sys.argv.index("--devices") + 1]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def stop(*_):
    child.kill()
    sys.exit()
{setup}
print(f"kerneldyno-evaluator ready grpc=127.0.0.1:1 node={{child.pid}} devices={{devices}}", flush=True)
{run}
"""
WELL_BEHAVED = EVALUATOR.format(setup="signal.signal(signal.SIGTERM, stop)", run="time.sleep(600)")
STUBBORN = EVALUATOR.format(setup="signal.signal(signal.SIGTERM, signal.SIG_IGN)", run="time.sleep(600)")
DYING_LATER = EVALUATOR.format(setup="", run="time.sleep(1); child.kill(); sys.exit('lost')")
DYING = "import sys; print('no such device: cuda:7', file=sys.stderr); sys.exit(3)\n"
SILENT = "import time; time.sleep(600)\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Returns a function that installs an evaluator for the launcher to find, and a scheduler that works."""

    def put(name: str, program: str) -> None:
        package = tmp_path / "kerneldyno" / name
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(program)

    def install(evaluator: str) -> None:
        put("scheduler", SCHEDULER)
        put("evaluator", evaluator)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]))

    return install


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_both_are_started_known_and_stopped(install: Install) -> None:
    install(WELL_BEHAVED)
    before = children()
    with LocalServices(devices="cpu") as services:
        assert services.address == services.scheduler["grpc"]
        assert services.scheduler["metrics"] == "off"
        assert services.evaluator["devices"] == "cpu"
        services.check()
        assert len(started_since(before)) == 3
    assert not started_since(before)


def test_one_that_will_not_stop_is_killed_with_all_it_started(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(STUBBORN)
    monkeypatch.setattr(local, "_STOP_SECONDS", (0.2, 0.2))
    with LocalServices(devices="cpu") as services:
        child = int(services.evaluator["node"])
        assert not gone(child)
    assert gone(child)


def test_one_that_dies_at_the_start_says_why_and_leaves_nothing(install: Install) -> None:
    install(DYING)
    before = children()
    with pytest.raises(LocalServiceError, match=r"evaluator ended with status 3\n  no such device: cuda:7"):
        LocalServices().__enter__()
    assert not started_since(before)


def test_one_that_is_never_ready_is_not_waited_for_for_ever(install: Install) -> None:
    install(SILENT)
    before = children()
    with pytest.raises(LocalServiceError, match="evaluator was not ready in time"):
        LocalServices(start_timeout=2.0).__enter__()
    assert not started_since(before)


def test_one_that_dies_later_is_noticed(install: Install) -> None:
    install(WELL_BEHAVED)
    before = children()
    with LocalServices(devices="cpu") as services:
        (evaluator,) = [child for child in started_since(before) if "kerneldyno.evaluator" in child.cmdline()]
        os.kill(int(services.evaluator["node"]), signal.SIGKILL)
        evaluator.kill()
        while not gone(evaluator.pid):
            time.sleep(0.01)
        with pytest.raises(LocalServiceError, match="evaluator ended with signal SIGKILL"):
            services.check()


def test_what_is_missing_is_named_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_NEEDS", {"evaluator": ("json", "no_such_package")})
    with pytest.raises(LocalServiceError, match=r"needs no_such_package, .*pip install .*\[evaluator\]"):
        local.refuse_missing("evaluator")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_addresses_and_stops_in_order(install: Install, number: signal.Signals) -> None:
    install(WELL_BEHAVED)
    before = children()
    command = [sys.executable, "-m", "kerneldyno.cli", "up", "--listen", "127.0.0.1:0", "--devices", "cpu"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stdout is not None
    assert up.stdout.readline().startswith("scheduler 127.0.0.1:")
    assert "devices cpu" in up.stdout.readline()
    assert "Ctrl-C" in up.stdout.readline()
    up.send_signal(number)
    _, errors = up.communicate(timeout=10)
    assert up.returncode == 0
    assert errors == "scheduler's log\n"
    assert not started_since(before)


def test_up_says_which_service_died(install: Install) -> None:
    install(DYING_LATER)
    command = [sys.executable, "-m", "kerneldyno.cli", "up", "--listen", "127.0.0.1:0", "--devices", "cpu", "--json"]
    began = time.monotonic()
    up = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert up.returncode == 3
    assert "kerneldyno: the evaluator ended with status 1; its log is above\n" in up.stderr
    assert up.stderr.count("lost") == 1
    assert '"devices": "cpu"' in up.stdout
    assert time.monotonic() - began < 15


async def test_up_is_for_this_machine() -> None:
    ran = await invoke("up", "--listen", "0.0.0.0:0")
    assert ran.status == 2
    assert "this machine only" in " ".join(ran.err.split())
