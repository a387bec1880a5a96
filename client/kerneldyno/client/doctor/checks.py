"""What a check of `kerneldyno doctor` is, and how many of them run: at once, each for a bounded time, none raising.

A check that takes too long is left behind in a thread of its own that the end of the process does not wait for: a dead
network file system or a driver that hangs is a finding like any other.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What a check found."""

    OK = "ok"
    NOTE = "note"
    """Works, or may; worth knowing."""
    FAILED = "failed"
    """Something must be mended."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    state: State
    detail: str
    remedy: str = ""
    """What to do, in one line; empty when nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Examination:
    """Something that looks, and makes one finding or several."""

    name: str
    """Of the finding that stands for all of them when it takes too long or breaks."""
    look: Callable[[], Iterable[Check]]
    seconds: float = 10.0
    """How long it may take. Generous: several run at once, perhaps on few cores."""


class ProbeError(Exception):
    """A program that was asked something did not answer; the message says why."""


def conduct(examinations: Sequence[Examination]) -> Iterator[Check]:
    """Start all examinations and yields their findings, in the order of `examinations`."""
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
    """A number of bytes for a person."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


class _Running:
    """An examination under way."""

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
            return [Check(self._examination.name, State.FAILED, text, "see what hangs there, then run doctor again")]
        return self._found

    def _run(self) -> None:
        try:
            self._found = list(self._examination.look())
        except Exception as error:
            text = f"could not be looked at: {type(error).__name__}: {error}"
            self._found = [Check(self._examination.name, State.NOTE, text)]
