"""Environments with one wheel and one extra: what a user has after `pip install`, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from extras import WITH_TORCH, constraints, included

#: Program that imports modules by name and prints those that cannot be imported, with the reason.
_IMPORT = """
import contextlib, importlib, io, json, sys
failed = {}
for name in json.load(sys.stdin):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""
_LIST = """
import importlib.metadata, json
print(json.dumps({one.name.lower(): one.version for one in importlib.metadata.distributions()}))
"""


def create(where: Path, python: str = sys.executable) -> Path:
    """Make an empty virtual environment without pip; return its interpreter."""
    subprocess.run([python, "-m", "venv", "--clear", "--without-pip", str(where)], check=True)
    return where / "bin" / "python"


def install(interpreter: Path, wheel: Path, extra: str) -> None:
    """Install a wheel with an extra and its requirements, in the tested versions, with this interpreter's pip."""
    wanted = f"kerneldyno[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    pip(interpreter, "install", "-c", str(constraints(extra)), wanted)


def pip(interpreter: Path, command: str, *arguments: str) -> str:
    """Run pip on another environment; return its output. Raises CalledProcessError; pip prints its own error before."""
    own = [sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check", "-qq"]
    done = subprocess.run([*own, command, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def installed(interpreter: Path) -> dict[str, str]:
    """Return the versions of the distributions in an environment, by lower-case name."""
    versions: dict[str, str] = json.loads(_run(interpreter, "-I", "-c", _LIST))
    return versions


def faults(interpreter: Path, extra: str, promised: Iterable[str], version: str) -> Iterator[str]:
    """Import what an extra promises, start its commands, and check that torch is absent if it must be."""
    yield from import_faults(interpreter, promised)
    if not included(extra) & WITH_TORCH and "torch" in installed(interpreter):
        yield "torch came along"
    if (said := version_of(interpreter)) != version:
        yield f"`kerneldyno --version` says {said!r}"
    programs = ["cli", *sorted({"scheduler", "evaluator"} & included(extra))]
    for program in programs:
        if "usage:" not in _run(interpreter, "-I", "-m", f"kerneldyno.{program}", "--help").lower():
            yield f"python -m kerneldyno.{program} --help shows no usage"


def import_faults(interpreter: Path, modules: Iterable[str]) -> Iterator[str]:
    """Import modules in one process of that environment; return a complaint for each that fails."""
    failed: dict[str, str] = json.loads(_run(interpreter, "-I", "-c", _IMPORT, stdin=json.dumps(list(modules))))
    return (f"import {module}: {why}" for module, why in failed.items())


def version_of(interpreter: Path) -> str:
    """Return the version that the installed command prints."""
    return _run(interpreter.with_name("kerneldyno"), "--version").strip().removeprefix("kerneldyno ")


def _run(*command: str | Path, stdin: str = "") -> str:
    done = subprocess.run([str(word) for word in command], input=stdin, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))[:200]}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout
