"""Run the checks of `kerneldyno doctor`: concurrently, each with a time limit, none raising.

A check that takes too long is abandoned in its own thread, which does not keep the process from ending: a dead network
file system or a driver that hangs is a finding like any other.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Result of a check."""

    OK = "ok"
    NOTE = "note"
    """It works, or may work; worth knowing."""
    FAILED = "failed"
    """Something must be fixed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    state: State
    detail: str
    remedy: str = ""
    """What to do, in one line; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Examination:
    """A function that makes one finding or several."""

    name: str
    """Name of the single finding that replaces them if it takes too long or fails."""
    look: Callable[[], Iterable[Check]]
    seconds: float = 10.0
    """Time limit in seconds. It is generous: several run at once, perhaps on few cores."""


class ProbeError(Exception):
    """A program that was queried did not answer; the message says why."""


def conduct(examinations: Sequence[Examination]) -> Iterator[Check]:
    """Start all examinations and yield their findings, in the order of `examinations`."""
    for running in [_Running(examination) for examination in examinations]:
        yield from running.findings()


def output_of(command: Sequence[str], seconds: float) -> str:
    """Return what a program writes to its standard output.

    Raises:
        ProbeError: it cannot be started, takes too long, or fails.
    """
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ProbeError(f"{command[0]} gave no answer within {seconds:g} s") from None
    except OSError as error:
        raise ProbeError(f"{command[0]}: {error.strerror}") from None
    if ran.returncode:
        last = ran.stderr.strip().splitlines()[-1:] or [f"exit status {ran.returncode}"]
        raise ProbeError(last[0][:500])
    return ran.stdout


def gib(nbytes: float) -> str:
    """Return a number of bytes for people."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


class _Running:
    """A running examination."""

    def __init__(self, examination: Examination) -> None:
        self._examination = examination
        self._found: list[Check] = []
        self._deadline = time.monotonic() + examination.seconds
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def findings(self) -> list[Check]:
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._thread.is_alive():
            text = f"no answer within {self._examination.seconds:g} s"
            return [Check(self._examination.name, State.FAILED, text, "find out what hangs, then run doctor again")]
        return self._found

    def _run(self) -> None:
        try:
            self._found = list(self._examination.look())
        except Exception as error:
            text = f"could not be checked: {type(error).__name__}: {error}"
            self._found = [Check(self._examination.name, State.NOTE, text)]
