"""A check that tests with the marker `pure` start no process and use no socket.

`make check` runs these tests, so they must stay quick and must not depend on the machine. tests/conftest.py calls
`watch`.
"""

from __future__ import annotations

import multiprocessing.process
import multiprocessing.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

#: Python's audit events for processes and sockets. An event loop's own pair of sockets raises none of them.
_FORBIDDEN = frozenset(
    (
        *("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"),
        *("socket.bind", "socket.connect", "socket.getaddrinfo"),
    )
)
#: Functions that start a process or open a socket without an audit event.
_UNSEEN: tuple[tuple[Any, str], ...] = (
    *((module, name) for module in (grpc, grpc.aio) for name in ("server", "insecure_channel", "secure_channel")),
    (multiprocessing.util, "spawnv_passfds"),
    (multiprocessing.process.BaseProcess, "start"),
)

_watching = False
_installed = False


class ImpureError(AssertionError):
    """A test with the marker `pure` started a process or used a socket."""


@contextmanager
def watch() -> Iterator[None]:
    """Raise ImpureError if code in this block starts a process or uses a socket."""
    global _watching, _installed
    if not _installed:  # an audit hook stays until the process ends, and costs a little time
        sys.addaudithook(_audit)
        _installed = True
    before = [(owner, name, getattr(owner, name)) for owner, name in _UNSEEN]
    for owner, name in _UNSEEN:
        setattr(owner, name, _refuse(name))
    _watching = True
    try:
        yield
    finally:
        _watching = False
        for owner, name, function in before:
            setattr(owner, name, function)


def _audit(event: str, _: tuple[object, ...]) -> None:
    if _watching and event in _FORBIDDEN:
        raise ImpureError(f"a test with the marker `pure` must not cause {event}")


def _refuse(name: str) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise ImpureError(f"a test with the marker `pure` must not call {name}()")

    return refuse
