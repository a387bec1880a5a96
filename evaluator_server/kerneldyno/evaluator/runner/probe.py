"""The sandbox's self-test: a runner without a candidate tries to break out, and reports which walls held.

Run once when a judge starts; `GetCapabilities` shows the answers. Each layer is proved by an attempt where one is
possible, and read from the kernel's own account of this process where it is not.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import sandbox


@dataclass(frozen=True, slots=True)
class Layer:
    """One wall and whether it holds."""

    name: str
    active: bool
    detail: str


def probe(outside: dict[str, Any]) -> list[Layer]:
    """Try each wall. `outside` tells what the judge sees of the host, to compare with: namespace ids and its own pid."""
    status = _own_status()
    spaces = {kind: _namespace(kind) for kind in ("user", "pid", "net", "ipc", "mnt")}
    layers = [
        Layer(f"{label}_namespace", inside != outside["namespaces"].get(kind), detail)
        for (kind, inside), (label, detail) in zip(
            spaces.items(),
            (
                ("user", "no capability in it counts outside, and process limits are its own"),
                ("pid", "other processes can be neither seen nor signalled"),
                ("network", "no interface but a loopback of its own"),
                ("ipc", "no System V or POSIX IPC with other processes"),
                ("mount", "a private root: system and Python read-only, nothing else"),
            ),
            strict=True,
        )
    ]
    return [
        *layers,
        _denied("network", "TCP and UDP to other hosts fail", _reach_network),
        _denied("processes", "signals to the judge fail", lambda: os.kill(int(outside["pid"]), 0)),
        _denied("files", "writing outside the scratch fails", _write_outside),
        Layer("unprivileged_uid", os.getuid() != 0, f"runs as uid {os.getuid()}"),
        Layer("no_capabilities", int(status.get("CapEff", "1"), 16) == 0, "holds no capability and can gain none"),
        Layer("no_new_privs", status.get("NoNewPrivs") == "1", "set-uid programs do not work"),
        Layer(
            "rlimits",
            resource.getrlimit(resource.RLIMIT_NPROC)[1] == sandbox.MAX_PROCESSES,
            f"at most {sandbox.MAX_PROCESSES} processes, {sandbox.MAX_OPEN_FILES} open files, no core dumps",
        ),
        Layer(
            "clean_environment", "HOME" in os.environ and len(os.environ) < 24, "no variable of the host's but paths"
        ),
    ]


def _own_status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _namespace(kind: str) -> str:
    return os.readlink(f"/proc/self/ns/{kind}")


def _denied(name: str, detail: str, attempt: Callable[[], None]) -> Layer:
    try:
        attempt()
    except OSError as error:
        return Layer(name, True, f"{detail} ({error.strerror or error})")
    return Layer(name, False, f"not so: {detail}")


def _reach_network() -> None:
    # 192.0.2.1 is reserved for documentation (RFC 5737): where there is a network, connecting a datagram socket to it
    # succeeds without a packet being sent; where there is none, there is no route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))


def _write_outside() -> None:
    for directory in (os.path.dirname(os.__file__), "/", "/etc", "/tmp", "/var/tmp", "/dev/shm/.."):
        path = f"{directory}/kerneldyno-probe-{os.getpid()}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError as error:
            last = error
            continue
        os.unlink(path)
        return
    raise last
