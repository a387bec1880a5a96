"""Tests that verl loads the plugin by itself in a fresh process, logs a failure, and that the doctor notices it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.testing.scripted_node import node
from tests.scheduler.scheduler_harness import scheduler

DOCTOR = (sys.executable, "-m", "kerneldyno.cli", "doctor", "verl")
REGISTRIES = """
import verl
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
print(get_adv_estimator_fn("trloo").__module__)
print(_agent_loop_registry["kernel_agent"]["_target_"])
print(get_reward_manager_cls("kerneldyno").__module__)
"""
CONNECTIONS = """
import gc, threading, grpc.aio
print(sum(isinstance(one, grpc.aio.Channel) for one in gc.get_objects()), "channels")
print(sum("grpc" in one.name.lower() for one in threading.enumerate()), "threads")
"""


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment with these variables and without any other VERL_ variable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")} | variables
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170)


def checks(ran: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(ran.stdout)}


def test_verl_loads_it_by_the_entry_point_and_it_opens_no_connection() -> None:
    ran = run(sys.executable, "-c", REGISTRIES + CONNECTIONS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [
        "kerneldyno.verl.estimator",
        "kerneldyno.verl.agent_loop.KernelAgentLoop",
        "kerneldyno.verl.manager",
        "0",
        "channels",
        "0",
        "threads",
    ]


def test_and_by_the_variable_of_older_versions() -> None:
    plugin = "kerneldyno.verl.plugin"
    ran = run(sys.executable, "-c", REGISTRIES, VERL_USE_EXTERNAL_PLUGINS="none", VERL_USE_EXTERNAL_MODULES=plugin)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A PYTHONPATH with a folder that makes one of the plugin's imports fail."""
    (tmp_path / "grpc_status.py").write_text("raise ImportError('there is no grpc_status here')\n")
    return os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])


def test_a_plugin_that_cannot_be_imported_is_an_error_in_the_log(broken: str) -> None:
    ran = run(sys.executable, "-c", "import verl", PYTHONPATH=broken)
    assert ran.returncode == 0, "verl goes on without it"
    assert "ERROR" in ran.stderr
    assert "kerneldyno doctor verl" in ran.stderr
    assert "there is no grpc_status here" in ran.stderr


async def test_the_doctor_finds_nothing_wrong() -> None:
    async with scheduler() as (app, _), node(app.address, "n1"):
        ran = await asyncio.to_thread(run, *DOCTOR, "--json", "--address", str(app.address))
    found = checks(ran)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert found["plugin loaded"]["state"] == "ok"
    assert "trloo" in found["estimators"]["detail"]
    assert found["agent loop"]["detail"] == "kernel_agent"
    assert found["reward manager"]["detail"] == "kerneldyno"
    assert "1 node(s)" in found["scheduler"]["detail"]
    assert not [name for name, check in found.items() if check["state"] == "failed"]


def test_the_doctor_names_what_is_wrong() -> None:
    ran = run(*DOCTOR, "--json", "--address", "127.0.0.1:9", VERL_USE_EXTERNAL_PLUGINS="other")
    assert ran.returncode == 1
    failed = {name: check for name, check in checks(ran).items() if check["state"] == "failed"}
    assert set(failed) == {"plugin found by verl", "plugin loaded", "scheduler"}
    assert "VERL_USE_EXTERNAL_PLUGINS=other" in failed["plugin found by verl"]["detail"]
