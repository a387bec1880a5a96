"""`kerneldyno vet`: check whether a problem can tell a kernel from a lazy answer.

Vetting executes references and needs torch, which the client never imports. So `kerneldyno.evaluator.vet` does the work
in its own process, whose output and exit status are passed on.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kerneldyno.cli.common import Json, UsageError, read_source, reporting
from kerneldyno.client.errors import LocalServiceError
from kerneldyno.rpc import installing
from kerneldyno.rpc.input_files import is_plain

_MODULE = "kerneldyno.evaluator.vet"


class Preset(StrEnum):
    """Rules for comparing outputs; see Tolerance."""

    CALIBRATED = "calibrated"
    ALLCLOSE = "allclose"
    LOOSE = "loose"


def vet(
    problems: Annotated[list[Path], typer.Argument(metavar="PROBLEM.py", help="Files in KernelBench's form.")],
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda:N", help="Where references run.")] = "auto",
    preset: Annotated[Preset, typer.Option("--preset", help="The tolerance to vet for.")] = Preset.CALIBRATED,
    rtol: Annotated[float | None, typer.Option("--rtol", min=0, help="For --preset allclose.")] = None,
    atol: Annotated[float | None, typer.Option("--atol", min=0, help="For --preset allclose.")] = None,
    as_json: Json = False,
) -> None:
    """Show which problems cannot tell a kernel from a lazy answer. It executes references without a sandbox."""
    with reporting():
        if preset is not Preset.ALLCLOSE and (rtol is not None or atol is not None):
            raise UsageError("--rtol and --atol need --preset allclose")
        for path in problems:
            read_source(path)  # reports an unreadable file before torch is imported, which takes seconds
            if not is_plain(path):
                raise UsageError(f"{path} is not a regular file, but another process must read it again")
        status = _run(_arguments(problems, device, preset, rtol, atol, as_json))
    raise typer.Exit(status)


def _arguments(
    problems: Sequence[Path], device: str, preset: Preset, rtol: float | None, atol: float | None, as_json: bool
) -> list[str]:
    arguments = [f"--device={device}", f"--preset={preset.value}"]
    arguments += [f"--{name}={value!r}" for name, value in (("rtol", rtol), ("atol", atol)) if value is not None]
    return [*arguments, *(["--json"] if as_json else []), "--", *map(str, problems)]


def _run(arguments: Sequence[str]) -> int:
    if importlib.util.find_spec("torch") is None:
        raise LocalServiceError(
            "vet executes references and needs torch, "
            f"not installed in {sys.executable}: {installing.command('evaluator')}"
        )
    status = subprocess.run([sys.executable, "-m", _MODULE, *arguments], stdin=subprocess.DEVNULL).returncode
    if status < 0:
        raise LocalServiceError(f"a reference ended the process that ran it by signal {-status}")
    return status
