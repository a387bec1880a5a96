"""`python -m kerneldyno.deploy.health` against real services: probes use its exit status."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kerneldyno.deploy.health import main
from kerneldyno.deploy.supervisor import Supervisor
from tests.deploy.supervised import ready
from tests.rpc.certificates import Authority

OPTIONS = ("--listen", "127.0.0.1:0", "--metrics", "off", "--store", "memory")


def test_a_service_without_tls(capfd: pytest.CaptureFixture[str]) -> None:
    scheduler = Supervisor("scheduler", sys.executable, OPTIONS)
    try:
        address = ready(scheduler)["grpc"]
        command = [sys.executable, "-m", "kerneldyno.deploy.health", address]
        assert subprocess.run(command, timeout=60).returncode == 0  # as a probe runs it
        assert main([address, "--service", "kerneldyno.v1.SchedulerService"]) == 0
        assert main([address, "--service", "kerneldyno.v1.EvaluatorService"]) == 1
        assert "NOT_FOUND" in capfd.readouterr().err
    finally:
        scheduler.stop(10)
    assert main([address]) == 1
    assert f"{address}: UNAVAILABLE" in capfd.readouterr().err


def test_a_service_that_wants_certificates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "theirs")
    pair = ours.issue("scheduler", host="DNS:kerneldyno-scheduler")
    tls = ("--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-client-ca", ours.cert)
    scheduler = Supervisor("scheduler", sys.executable, (*OPTIONS, *tls))
    try:
        address = ready(scheduler)["grpc"]
        own = [f"--tls-cert={pair.cert}", f"--tls-key={pair.key}"]
        name = "--tls-name=kerneldyno-scheduler"
        assert main([address, f"--tls-ca={ours.cert}", name, *own]) == 0
        assert main([address, f"--tls-ca={ours.cert}", *own]) == 1  # 127.0.0.1 is not in the certificate
        assert main([address, f"--tls-ca={ours.cert}", name]) == 1
        assert main([address, f"--tls-ca={theirs.cert}", name, *own]) == 1
        assert main([address]) == 1
        lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("kerneldyno-health: ")]
        assert all(line.startswith(f"kerneldyno-health: {address}: UNAVAILABLE: ") for line in lines)
        hints = ("another host name", "asks for a client certificate", "did not sign it", "as a service with TLS does")
        assert [hint in line for hint, line in zip(hints, lines, strict=True)] == [True] * 4, lines
        assert main([address, f"--tls-ca={tmp_path / 'none.pem'}"]) == 2
        assert "none.pem" in capfd.readouterr().err
    finally:
        scheduler.stop(10)


def test_something_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert main([f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.5"]) == 1
