"""`make matrix`: install the wheel and run a smoke set of tests under every Python from 3.11 on that this machine has.

It finds interpreters on PATH and among pyenv's. Tests that need torch run if pip finds a build of torch for the CPU:
other builds are gigabytes, and are fetched only with --torch. It prints what it did not find or run. Exit status 1: a
failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import artifacts
import environments
from extras import ROOT, promised

from kerneldyno.rpc.version import VERSION

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
#: Distributions that the tests themselves need; constraints.txt has their versions.
_TEST_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "psutil")
_EXTRA = "scheduler,rollout,gateway,tracing"
#: Tests with real sockets, real processes, files and the state machine; about a minute for each interpreter.
_SMOKE = (
    *("tests/rpc/test_rpc_calls.py", "tests/rpc/test_identity.py", "tests/rpc/test_tls.py"),
    *("tests/scheduler/test_scheduler_core.py", "tests/scheduler/test_scheduler_stream.py"),
    *("tests/scheduler/test_scheduler_process.py", "tests/scheduler/test_store_sqlite.py"),
    *("tests/client/test_client_aio.py", "tests/client/test_client_cli.py", "tests/client/test_client_jsonl.py"),
    *("tests/rewards/test_scoring.py", "tests/rewards/test_trajectories.py"),
    "tests/tracing/test_traced_program.py",
)
_TORCH_SMOKE = (
    "tests/training/test_advantages.py",
    "tests/training/test_losses.py",
    "tests/evaluator/test_judge_rules.py",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Test every interpreter; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="3.N", help=f"default: {' '.join(VERSIONS)}")
    parser.add_argument("--torch", action="store_true", help="install torch whatever it is built for")
    chosen = parser.parse_args(arguments)
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        wheel = artifacts.build(ROOT, Path(scratch), "wheel")
        for version in chosen.versions:
            python = find(version)
            if python is None:
                print(f"--  Python {version}: not on this machine")
                continue
            begun = time.monotonic()
            with_torch = chosen.torch or has_cpu_torch(python, Path(scratch) / f"{version}-torch")
            faults = run(python, Path(scratch) / version, wheel, with_torch=with_torch)
            failed = failed or bool(faults)
            note = "" if with_torch else "; without torch: no build for the CPU was found for it"
            print(
                f"{'BAD' if faults else 'ok ':3} Python {version} ({time.monotonic() - begun:.0f} s){note}", flush=True
            )
            for fault in faults:
                print(f"    {fault}")
    return 1 if failed else 0


def find(version: str) -> str | None:
    """Return an interpreter of that version that starts, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}")))]
    for candidate in candidates:  # PATH can have a shim of pyenv for a version that it does not start
        if (
            candidate
            and subprocess.run([candidate, "-c", "import venv, ssl, sqlite3"], capture_output=True).returncode == 0
        ):
            return candidate
    return None


def has_cpu_torch(python: str, where: Path) -> bool:
    """Return True if pip would install a torch without CUDA for that interpreter; do not install it."""
    interpreter = environments.create(where, python)
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    try:
        said = environments.pip(interpreter, "install", "--dry-run", "--no-deps", "--report", "-", torch)
    except subprocess.CalledProcessError:
        return False
    return "+cpu" in said or "%2Bcpu" in said


def run(python: str, where: Path, wheel: Path, *, with_torch: bool) -> list[str]:
    """Install the wheel under one interpreter, import what it promises, run the smoke tests; return the complaints."""
    interpreter = environments.create(where, python)
    names = [_EXTRA, "evaluator", "training"] if with_torch else [_EXTRA]
    extra = ",".join(names)
    environments.install(interpreter, wheel, extra)
    environments.pip(interpreter, "install", "-c", str(ROOT / "constraints.txt"), *_TEST_TOOLS)
    modules = artifacts.modules(wheel)
    wanted = {module for name in extra.split(",") for module in promised(name, modules)}
    faults = list(environments.import_faults(interpreter, sorted(wanted)))
    if environments.version_of(interpreter) != VERSION:
        faults.append(f"its `kerneldyno --version` is not {VERSION}")
    tests = (*_SMOKE, *(_TORCH_SMOKE if with_torch else ()))
    # tests/conftest.py, which needs hypothesis, is not loaded because of --confcutdir.
    options = ["-q", "-m", "not gpu", "-k", "not curl", "-p", "no:cacheprovider"]  # tests with curl need .venv's buf
    for folder in sorted({str(Path(test).parent) for test in tests}):
        chosen = [test for test in tests if str(Path(test).parent) == folder]
        done = subprocess.run(
            [interpreter, "-m", "pytest", *options, f"--confcutdir={folder}", *chosen],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        last = done.stdout.strip().splitlines()[-1:] or ["no output"]
        print(f"    {folder}: {last[0]}", flush=True)
        if done.returncode:
            faults.append(f"{folder}:\n{done.stdout[-3000:]}")
    return faults


if __name__ == "__main__":
    sys.exit(main())
