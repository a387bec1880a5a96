"""A rehearsal: a candidate's Python runs once without a device, to find out whether it fails before it needs one.

On a GPU a runner needs a context, which occupies the driver of the whole host for a tenth of a second. A candidate whose
import fails, or that Triton's compiler refuses, does not get one. What the process says is believed as a runner's error
is, since no way of failing pays. So it must not say that a candidate fails that would not fail on the device. It
reports only what does not depend on the device: an ordinary mistake in the candidate's own lines during the import, if
the candidate has asked nothing of the pretended GPU; and in the first call a name that does not exist, or what the
compiler refuses, if no answer was a guess. What fails while another failure is handled does not count, for that one may be
due to the missing device, and neither does anything after a look at the machine. Everything else is left to the runner.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import traceback
from types import ModuleType
from typing import Any

from ..shared import wire
from ..shared.tracebacks import CANDIDATE_FILE, ErrorDescription, describe_error
from . import pretended_gpu
from .candidate_source import import_candidate

#: Exceptions that Python itself raises for mistakes. Others may tell of a device, a library or the machine.
_MISTAKES = (NameError, ImportError, AttributeError, TypeError, SyntaxError)
#: What Triton's compiler raises for a kernel that is not in its language. Other failures may have other causes.
_REFUSALS = {"CompilationError", "UnsupportedLanguageConstruct"}


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the judge on `channel`: orders `load` and `call`, each with one answer. This runs inside the sandbox."""
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    rehearsal = _Rehearsal(scratch)
    sys.addaudithook(_watch)
    while (received := wire.receive(channel)) is not None:
        order = received[0]
        error = rehearsal.load(order) if order["op"] == "load" else rehearsal.call(order)
        wire.send(channel, {"ok": None if error is None else dataclasses.asdict(error)})


#: What Python reports (https://docs.python.org/3/library/audit_events.html) when a candidate looks at the machine.
_LOOKS = ("ctypes.dlopen", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
_LOOKS_AT, _PLACES = ("open", "os.listdir", "os.scandir"), ("/dev", "/proc", "/sys")


def _watch(event: str, details: tuple[Any, ...]) -> None:
    if event in _LOOKS or (event in _LOOKS_AT and str(details[0]).startswith(_PLACES)):
        pretended_gpu.asked.guess()


class _Rehearsal:
    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._module: ModuleType | None = None
        self._refused: list[BaseException] = []

    def load(self, order: wire.Frame) -> ErrorDescription | None:
        """Import the candidate. Return its mistake."""
        pretended_gpu.install(order["architecture"])
        if order["backend"] == "triton":
            from .pretended_compiler import FirstStage

            self._refused = FirstStage(order["architecture"]).raised
        try:
            with pretended_gpu.PretendedGpu():
                self._module = import_candidate(order["source"], order["files"], self._scratch)
        except BaseException as error:
            if isinstance(error, _MISTAKES) and self._is_own(error) and not pretended_gpu.asked.anything:
                return describe_error(error, CANDIDATE_FILE)
        return None

    def call(self, order: wire.Frame) -> ErrorDescription | None:
        """Construct the candidate and call it. Return its mistake, or why the compiler refuses one of its kernels."""
        if self._module is None or not hasattr(self._module, order["symbol"]):
            return None
        try:
            with pretended_gpu.PretendedGpu():
                pretended_gpu.construct_and_call(self._module, order["symbol"], order["sketch"])
        except BaseException as error:
            refused = any(error is each for each in self._refused) and _is_refusal(error)
            mistaken = isinstance(error, NameError) and self._is_own(error)
            if (refused or mistaken) and not pretended_gpu.asked.guesses:
                return describe_error(error, CANDIDATE_FILE)
        return None

    def _is_own(self, error: BaseException) -> bool:
        """Return True if one of the candidate's own lines has raised `error`, and not because of another one."""
        if error.__context__ is not None:
            return False
        own = self._scratch + os.sep
        if isinstance(error, SyntaxError):
            return (error.filename or "").startswith(own)
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        files = [file for file in files if not file.startswith("<frozen importlib")]  # `import` itself
        return bool(files) and files[-1].startswith(own)


def _is_refusal(error: BaseException) -> bool:
    names: set[Any] = {base.__name__ for base in type(error).__mro__}
    return bool(names & _REFUSALS)
