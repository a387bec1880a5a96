"""The job script with real services, certificates and tokens.

Two small programs replace Slurm: `scontrol`, which knows the job's node, and `srun`, which becomes the command and so
receives its signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kerneldyno.client import Client
from kerneldyno.client.errors import KernelDynoError
from tests.deploy.deploy_files import DEPLOY
from tests.waiting import wait_until

SCRIPT = DEPLOY / "slurm/kerneldyno.sbatch"
_SCONTROL = """#!/bin/sh
[ "$1 $2 $3" = "show hostnames nodes" ] && echo localhost
"""
#: Drops srun's own options, which come before the program, and becomes the program, which then gets the signals.
_SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
SLURMD_NODENAME=gpu-1 exec "$@"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("scontrol", _SCONTROL), ("srun", _SRUN)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "nodes", "SLURM_JOB_NUM_NODES": "1"}
    options = "--devices cpu --lanes 1 --spares 1"
    return {
        **os.environ,
        **job,
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KERNELDYNO_PYTHON": sys.executable,
        "KERNELDYNO_EVALUATOR_OPTIONS": options,
    }


def test_it_serves_a_command_and_ends_with_it(environment: dict[str, str], tmp_path: Path) -> None:
    judge = (
        "import sys, time\n"
        "from kerneldyno.client import Client\n"
        "import os\n"
        "with Client(os.environ['KERNELDYNO_ADDRESS']) as client:\n"
        "    while not client.nodes(): time.sleep(0.1)\n"
        "    print('nodes', [(node.node_id, node.labels['slurm_job']) for node in client.nodes()])\n"
        "sys.exit(7)\n"
    )
    command = ["bash", str(SCRIPT), sys.executable, "-c", judge]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 7, done.stderr  # the exit status of the command
    assert "nodes [('gpu-1', '42')]" in done.stdout
    files = tmp_path / "kerneldyno-42"
    assert files.stat().st_mode & 0o077 == 0
    assert not (files / "ca.key").exists()
    assert "event=stopped" in (files / "scheduler.log").read_text()
    assert "event=stopped" in (files / "evaluators.log").read_text()


def test_the_time_limit_drains_and_nobody_without_a_token_is_served(
    environment: dict[str, str], tmp_path: Path
) -> None:
    files = tmp_path / "kerneldyno-42"
    with subprocess.Popen(["bash", str(SCRIPT)], env=environment, stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout is not None
            line = job.stdout.readline()
            address = line.split()[1].rstrip(",")
            assert line == f"scheduler {address}, clients: source {files}/client.env\n"
            family = psutil.Process(job.pid).children(recursive=True)
            ca = str(files / "ca.pem")
            with Client(address, tls_ca=ca, token=(files / "client.token").read_text()) as client:
                wait_until(lambda: bool(client.nodes()), "the evaluator")
            for token in ("", "wrong", (files / "node.token").read_text()):
                with Client(address, tls_ca=ca, token=token, call_timeout=5) as client, pytest.raises(KernelDynoError):
                    list(client.list())
            job.send_signal(signal.SIGTERM)  # as --signal=B:TERM@180 does
            assert job.wait(60) == 0
        finally:
            job.kill()
    evaluators = (files / "evaluators.log").read_text()
    assert "event=draining" in evaluators
    assert "event=stopped" in evaluators
    assert "event=stopped" in (files / "scheduler.log").read_text()
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_scheduler_that_cannot_start_ends_the_job(environment: dict[str, str]) -> None:
    environment["KERNELDYNO_SCHEDULER_OPTIONS"] = "--lease 1"
    done = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the scheduler ended:" in done.stderr
    assert "lease_seconds must be at least twice" in done.stderr
