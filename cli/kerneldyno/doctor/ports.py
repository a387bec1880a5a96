"""Checks of KernelDyno's default ports: free, used by KernelDyno, or used by another program."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from kerneldyno.doctor.checks import Check, State

#: Default ports of a scheduler and an evaluator on one machine: their use, and the option that changes them.
DEFAULTS = {
    50051: ("scheduler", "--listen"),
    9464: ("scheduler's metrics", "--metrics"),
    50052: ("evaluator", "--listen"),
    9465: ("evaluator's metrics", "--metrics"),
}
_METRICS = (9464, 9465)
_SECONDS = 1.0
_LISTENING = "0A"


def default_ports() -> Iterator[Check]:
    """Yield findings on the use of this machine's default ports."""
    free = []
    for port, (use, option) in DEFAULTS.items():
        name = f"port {port}"
        if _is_free(port):
            free.append(f"{port} ({use})")
        elif port in _METRICS and not _is_our_metrics(port):
            remedy = f"give another {option} (or {option} off) for {use}, or stop that program"
            yield Check(name, State.NOTE, f"taken by {holder(port) or 'another program'}", remedy)
        else:
            yield Check(name, State.OK, f"{use}: in use by {holder(port) or 'a program of another user'}")
    if free:
        yield Check("ports", State.OK, f"free: {', '.join(free)}")


def holder(port: int) -> str:
    """Return the program that listens on `port` of this machine: "python (pid 12)", or "" if it cannot be seen."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{words[9]}]")
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(str(link.readlink()) in inodes for link in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return ""


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_our_metrics(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)) as connection:
        try:
            connection.request("GET", "/metrics")
            return b"kerneldyno_" in connection.getresponse().read(1 << 20)
        except (OSError, http.client.HTTPException):
            return False
