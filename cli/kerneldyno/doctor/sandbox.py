"""Checks of the sandbox around candidates: what this machine supports, and what is active on running nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kerneldyno.doctor.checks import Check, State, output_of
from kerneldyno.v1.fleet_service_pb2 import SandboxLayer

_PROBE_SECONDS = 8.0
_NAMESPACES = {"user_namespace", "pid_namespace", "network_namespace", "ipc_namespace", "mount_namespace"}
_FILTERS = {"landlock", "seccomp"}
#: Names for people of the layers that the probe tries.
_WALLS = {"namespaces": "namespaces", "landlock": "Landlock", "seccomp": "seccomp"}
#: Layers that `--sandbox require` does not require.
_OPTIONAL = {"cgroup", "one_gpu", "process_list"}
_REMEDY = "see Sandbox modes in docs/operating.md: user namespaces, or a kernel with Landlock (5.13) and seccomp"


def here() -> Iterator[Check]:
    """Yield a finding on the sandbox that an evaluator started by this user on this machine would get."""
    name = "sandbox here"
    if sys.platform != "linux":
        yield Check(name, State.NOTE, "candidates are judged on Linux only")
        return
    probe = Path(__file__).with_name("walls_probe.py")
    found = json.loads(output_of([sys.executable, "-I", str(probe)], _PROBE_SECONDS))
    missing = "; ".join(f"no {wall}: {why}" for wall, why in found.items() if why)
    had = [name for wall, name in _WALLS.items() if not found[wall]]
    text = f"to be had: {', '.join(had) or 'neither namespaces nor filters'}" + (f" ({missing})" if missing else "")
    if not found["namespaces"] or not (found["landlock"] or found["seccomp"]):
        yield Check(name, State.OK, f"{text}; --sandbox require will serve if its self-test holds")
    else:
        yield Check(name, State.NOTE, f"{text}; --sandbox require will refuse", _REMEDY)


def of_node(node_id: str, layers: Iterable[SandboxLayer]) -> Check:
    """Return a finding on the sandbox of a running node, by the self-test that the node made when it started."""
    name = f"sandbox of {node_id}"
    known = list(layers)
    if not known:
        return Check(name, State.OK, "unknown: its evaluator is older than this and does not tell; run doctor there")
    lost = {layer.name: layer.detail for layer in known if not layer.active}
    spared = set(_OPTIONAL)
    if not lost.keys() & _NAMESPACES:
        kind = "namespaces" + ("" if lost.keys() & _FILTERS else ", Landlock and seccomp")
        spared |= _FILTERS | {"kernel"}
    elif not lost.keys() & _FILTERS:
        kind = "Landlock and seccomp, no namespaces"
        spared |= _NAMESPACES
    else:
        kind = "neither all namespaces nor all filters"
    missing = lost.keys() - spared
    text = kind + (f"; not active: {', '.join(sorted(lost))}" if lost else "; all layers are active")
    if missing:
        return Check(name, State.NOTE, f"{text}; --sandbox require would refuse to serve", _REMEDY)
    return Check(name, State.OK, text)
