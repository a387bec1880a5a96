"""Checks of `kerneldyno doctor verl`: whether this environment can run verl with KernelDyno.

They look at the installed packages, have verl import its plugins in a separate process, and call the scheduler if its
address is given. They change nothing and need no GPU. They check this machine only: run the command on each machine of a
run.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from kerneldyno.client import AsyncClient, Turn
from kerneldyno.doctor.checks import Check, State
from kerneldyno.rpc import installing
from kerneldyno.rpc.errors import KernelDynoError
from kerneldyno.verl import probe

#: The version that the tests use, and the prefix of versions with the same interfaces.
TESTED, SERIES = "0.9.1", "0.9."
#: Packages that verl's agent loops and default trainer import and its base install lacks: distribution by module.
_NEEDED = {"transfer_queue": "TransferQueue", "cachetools": "cachetools", "uvicorn": "uvicorn", "fastapi": "fastapi"}
_ENGINES = ("vllm", "sglang", "tensorrt_llm")
_PROBE_SECONDS = 300.0


def diagnose(address: str | None = None) -> list[Check]:
    """Run all checks. Importing verl takes some seconds.

    Args:
        address: host:port of the scheduler; None to skip that check.
    """
    version = _version("verl")
    checks = [_verl(version)]
    if version is None:
        return checks
    checks += [_entry_point(version), *_probed(), *_packages()]
    if address is not None:
        checks.append(asyncio.run(_scheduler(address)))
    return checks


def _verl(version: str | None) -> Check:
    if version is None:
        return Check("verl", State.FAILED, f"not installed in {sys.executable}", installing.command("verl"))
    if version == TESTED:
        return Check("verl", State.OK, version)
    if version.startswith(SERIES):
        return Check("verl", State.NOTE, f"{version}; tested with {TESTED}")
    remedy = f"pip install 'verl=={TESTED}'"
    if _older(version):
        return Check(
            "verl",
            State.FAILED,
            f"{version} lacks the V1 trainer and the agent loop's token helpers of 0.9",
            remedy,
        )
    return Check("verl", State.NOTE, f"{version} is newer than the tested version ({TESTED})", remedy)


def _entry_point(version: str) -> Check:
    """Check whether verl looks for the plugin."""
    name = "plugin found by verl"
    modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "")
    if probe.PLUGIN in [module.strip() for module in modules.split(",")]:
        return Check(name, State.OK, f"VERL_USE_EXTERNAL_MODULES={modules}")
    by_variable = f"export VERL_USE_EXTERNAL_MODULES={probe.PLUGIN} in every process of the run"
    if not any(entry.value == probe.PLUGIN for entry in metadata.entry_points(group="verl.plugins")):
        return Check(
            name,
            State.FAILED,
            "no entry point of the group verl.plugins refers to it",
            f"{installing.command()}, or {by_variable}",
        )
    if _older(version):
        return Check(name, State.FAILED, f"verl {version} reads no entry points", by_variable)
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and "kerneldyno" not in policy.split(","):
        return Check(
            name, State.FAILED, f"VERL_USE_EXTERNAL_PLUGINS={policy} leaves it out", "unset it, or add kerneldyno"
        )
    return Check(name, State.OK, "entry point of the group verl.plugins")


def _probed() -> Iterator[Check]:
    """Check what a new process finds registered."""
    name = "plugin loaded"
    try:
        ran = subprocess.run(
            [sys.executable, "-m", probe.__name__],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        yield Check(name, State.FAILED, f"importing verl took longer than {_PROBE_SECONDS:g} s")
        return
    line = next((line for line in ran.stdout.splitlines() if line.startswith(probe.PREFIX)), None)
    if line is None:
        last = ran.stderr.strip().splitlines()[-1:]
        yield Check(
            name, State.FAILED, f"the process ended while importing verl, status {ran.returncode}: {' '.join(last)}"
        )
        return
    found = json.loads(line.removeprefix(probe.PREFIX))
    if found["verl"]:
        yield Check(name, State.FAILED, f"verl cannot be imported: {found['verl']}", installing.command("verl"))
    elif found["error"]:
        yield Check(name, State.FAILED, f"importing it fails: {found['error']}", installing.command("verl"))
    elif not found["loaded"]:
        yield Check(name, State.FAILED, "it can be imported, but verl did not import it; see the check above")
    else:
        yield Check(name, State.OK, "by verl itself, in a fresh process")
        yield _registered("estimators", ", ".join(found["estimators"]) if "trloo" in found["estimators"] else "")
        yield _registered("agent loop", "kernel_agent" if found["agent_loop"] else "")
        yield _registered("reward manager", "kerneldyno" if found["manager"] else "")


def _registered(name: str, names: str) -> Check:
    if names:
        return Check(name, State.OK, names)
    return Check(name, State.FAILED, "not registered: another plugin has the name, or verl has moved its registry")


def _packages() -> Iterator[Check]:
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        yield Check(
            "verl's own needs",
            State.FAILED,
            f"missing: {', '.join(missing)}",
            f"pip install {' '.join(missing)}",
        )
    else:
        yield Check("verl's own needs", State.OK, ", ".join(f"{name} {_version(name)}" for name in _NEEDED.values()))
    engines = [f"{name} {_version(name)}" for name in _ENGINES if _version(name) is not None]
    if engines:
        yield Check("rollout engine", State.OK, ", ".join(engines))
    else:
        yield Check("rollout engine", State.NOTE, "none installed; a run needs one", "pip install 'verl[vllm]'")


async def _scheduler(address: str) -> Check:
    """Check whether a scheduler answers, lets this caller ask for rewards, and has evaluators."""
    name = "scheduler"
    try:
        async with AsyncClient(address, reconnect_timeout=5.0) as client:
            able = await client.capabilities()
            # An empty turn is answered at once and not queued; it only shows that this caller may ask.
            async for _ in client.rewards([Turn()], "kevin", timeout=10.0, on_missing="yield"):
                pass
    except KernelDynoError as error:
        return Check(name, State.FAILED, f"{address}: {error}", "start it, or correct the address or the credentials")
    detail = f"{address}, version {able.version}, {able.nodes} node(s), backends: {', '.join(able.backends) or 'none'}"
    if not able.nodes:
        return Check(name, State.FAILED, detail, "start an evaluator: python -m kerneldyno.evaluator --scheduler ...")
    return Check(name, State.OK, detail)


def _older(version: str) -> bool:
    parts = version.split(".")
    return parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 9


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
