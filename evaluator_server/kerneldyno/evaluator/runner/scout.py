"""A scout: it runs a candidate's Python without a device, only to learn which native code it wants to have built.

Orders to build are noted and not executed; the candidate gets a stand-in for each module. First the source is imported.
If it names more builds than were seen then, its class is constructed and called on tensors without memory (the device
"meta"). Whatever goes wrong ends the scouting and nothing else: what was not found here is built later, in the
candidate's own runner. What a scout says is the candidate's word. It decides only what is built ahead.
"""

from __future__ import annotations

import dataclasses
import importlib.abc
import os
import re
import socket
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..shared import wire
from ..shared.native_build import NATIVE, NativeBuild
from ..shared.tracebacks import CANDIDATE_FILE, ErrorDescription, describe_error
from . import extensions, pretended_gpu
from .candidate_source import import_candidate

#: Most builds of one candidate.
_MOST_BUILDS = 16
_BUILD_CALL = re.compile(r"\b(?:load_inline|load)\s*\(")


class _UnbuiltError(Exception):
    """The candidate has called a function of a module that is not there."""


class _StandIn(ModuleType):
    """Stands for a module that is not built: it has every function, and none can be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def function(*_: Any, **__: Any) -> Any:
            raise _UnbuiltError(name)

        return function


class _Notes:
    """The builds that were asked for. Those in `failures` raise, with the compilers' messages."""

    def __init__(self, failures: dict[str, str]) -> None:
        self.builds: list[NativeBuild] = []
        self._failures = failures
        self._raised: list[RuntimeError] = []

    def provide(self, build: NativeBuild, target: Path) -> bool:
        """Note an order to build, and do as if it had been executed. Raises RuntimeError, as torch does."""
        if build not in self.builds and len(self.builds) < _MOST_BUILDS:
            self.builds.append(build)
        if (log := self._failures.get(build.digest)) is not None:
            error = RuntimeError(f"Error building extension '{build.name}': {log}")
            self._raised.append(error)
            raise error
        return True

    def caused(self, error: BaseException) -> bool:
        """Return True if a failed build is the cause of `error`."""
        current: BaseException | None = error
        for _ in range(8):
            if current is None:
                return False
            if any(current is raised for raised in self._raised):
                return True
            current = current.__cause__ or current.__context__
        return False


def run(channel: socket.socket, shared_fds: list[int], frame: wire.Frame, scratch: str) -> None:
    """Serve the builder on `channel`: one order, one answer. This runs inside the sandbox."""
    wire.send(channel, {"ok": "ready", "pace": 0.0})
    while (received := wire.receive(channel)) is not None:
        wire.send(channel, {"ok": _scout(received[0], scratch)})


def _scout(order: wire.Frame, scratch: str) -> dict[str, Any]:
    notes = _Notes(order["failures"])
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", order["architecture"])
    extensions.intercept(notes.provide, _StandIn)
    if order["native"] is not None:
        _offer_native(NativeBuild.from_json(order["native"]), notes)
    pretended_gpu.install(order["architecture"])
    error: ErrorDescription | None = None
    try:
        with pretended_gpu.PretendedGpu():
            module = import_candidate(order["source"], order["files"], scratch)
            if order["sketch"] is not None and len(_BUILD_CALL.findall(order["source"])) > len(notes.builds):
                pretended_gpu.construct_and_call(module, order["symbol"], order["sketch"])
    except BaseException as raised:
        if notes.caused(raised):
            error = describe_error(raised, CANDIDATE_FILE)
    return {
        "builds": [build.to_json() for build in notes.builds],
        "error": None if error is None else dataclasses.asdict(error),
    }


def _offer_native(build: NativeBuild, notes: _Notes) -> None:
    """Make `native` importable: as a stand-in, or with the error of its build."""

    class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
            return ModuleSpec(NATIVE, self) if fullname == NATIVE else None

        def create_module(self, spec: ModuleSpec) -> ModuleType:
            return _StandIn(NATIVE)

        def exec_module(self, module: ModuleType) -> None:
            notes.provide(build, Path())

    sys.meta_path.insert(0, _Finder())
