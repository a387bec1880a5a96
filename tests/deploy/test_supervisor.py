"""The supervisor of one service, with a real scheduler as its child."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

import psutil
import pytest

from kerneldyno.deploy.supervisor import Supervisor
from tests.deploy.supervised import ready
from tests.waiting import wait_until

OPTIONS = ("--metrics", "off", "--store", "memory")


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_it_comes_back_when_it_is_killed_and_stays_away_when_it_is_stopped() -> None:
    log = io.StringIO()
    service = Supervisor("scheduler", sys.executable, ("--listen", "127.0.0.1:0", *OPTIONS), echo=log)
    ready(service)
    first = service.state()
    assert (first.restarts, first.last_end) == (0, "")
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: service.state().restarts == 1 and bool(service.state().ready), "the second life")
    second = service.state()
    assert second.pid not in (None, first.pid)
    assert second.last_end.startswith("ended with signal SIGKILL\n")
    assert "event=settings" in second.last_end
    service.stop(10)
    assert second.pid is not None
    assert gone(second.pid)
    assert service.state().pid is None
    assert service.state().restarts == 1
    assert "event=stopped" in log.getvalue()
    service.stop(10)


def test_a_service_that_cannot_start_tells_why_and_is_tried_again() -> None:
    service = Supervisor("scheduler", sys.executable, ("--listen", "0.0.0.0:0", *OPTIONS))
    try:
        wait_until(lambda: service.state().restarts >= 1, "the second try")
        state = service.state()
        assert "would let others in without TLS" in state.last_end
        assert state.ready is None
    finally:
        service.stop(10)


def test_an_interpreter_that_is_not_there() -> None:
    service = Supervisor("scheduler", "/nowhere/python", OPTIONS)
    wait_until(lambda: bool(service.state().last_end), "the reason")
    assert "cannot be started with /nowhere/python" in service.state().last_end
    service.stop(10)


def test_it_ends_with_its_supervisor() -> None:
    script = (
        "import sys, time\n"
        "from kerneldyno.deploy.supervisor import Supervisor\n"
        f"service = Supervisor('scheduler', sys.executable, ('--listen', '127.0.0.1:0', *{OPTIONS!r}))\n"
        "while not service.state().ready: time.sleep(0.05)\n"
        "print(service.state().pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not gone(pid)
        owner.kill()
    wait_until(lambda: gone(pid), "the end of the scheduler")


def test_credentials_for_others_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELDYNO_TOKENS", "bob:submit:secret")
    service = Supervisor("scheduler", sys.executable, ("--listen", "127.0.0.1:0", *OPTIONS))
    try:
        ready(service)
        pid = service.state().pid
        assert pid is not None
        assert "KERNELDYNO_TOKENS" not in psutil.Process(pid).environ()
    finally:
        service.stop(10)
