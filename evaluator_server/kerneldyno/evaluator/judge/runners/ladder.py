"""The sandbox ladder: find the strongest set of walls with which a runner starts, and test what it cannot break.

This happens once, when a judge starts. A set that cannot be built here (for example, no namespaces in an ordinary
container) is skipped, and the reason is then given for the missing layers. This module also decides what
`--sandbox=require` needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

import torch

from ...shared import proc
from ...walls import Layer, Unavailable, Walls, gpu, namespaces
from .handle import RunnerGarbled, RunnerGone, RunnerLate, RunnerStartError
from .pool import Pool

_log = logging.getLogger("kerneldyno.judge")

#: Time limit for all attempts to break out, in seconds.
_PROBE_SECONDS = 30
_NAMESPACES = frozenset({"user_namespace", "pid_namespace", "network_namespace", "ipc_namespace", "mount_namespace"})
_FILTERS = frozenset({"landlock", "seccomp"})
#: Layers that `require` does not need. Control groups are rarely delegated. There may be only one GPU. The list of
#: processes is harmless while no process in it can be touched.
_OPTIONAL = frozenset({"cgroup", "one_gpu", "process_list"})


@dataclasses.dataclass(frozen=True, slots=True)
class _OwnGpu:
    uuid: str
    nodes: tuple[str, ...]


class NoWallsError(Exception):
    """No acceptable set of walls can be built; the message says why."""


async def climb_down(pool: Pool, device_kind: str, wanted: str) -> list[Layer]:
    """Set the pool's walls to the strongest set that works, and return the layers that the self-test found.

    Args:
        pool: The pool whose runners get the walls.
        device_kind: The kind of device.
        wanted: "auto" (whatever works), "require" (namespaces, or Landlock and seccomp, and no attempt to break out
            succeeds) or "off" (a process of its own, limits, no capabilities).

    Raises:
        NoWallsError: No acceptable set works.
    """
    own, no_single_gpu = _own_gpu(device_kind)
    reasons: list[str] = []
    causes = ["--sandbox=off"] if wanted == "off" else []
    for walls, uuid in _rungs(wanted, own, gpu.all_nodes() if device_kind == "cuda" else ()):
        pool.walls = walls
        # The number that CUDA gives a GPU depends on how many other GPUs can be opened.
        pool.environment = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
        try:
            layers = await _probe(pool)
        except RunnerStartError as error:
            reasons.append(f"a runner {_describe(walls)} could not be started: {error}")
            causes.append(str(error))
            continue
        if no_single_gpu:
            layers = [_with_reason(layer, no_single_gpu) if layer.name == "one_gpu" else layer for layer in layers]
        if wanted == "require" and (missing := shortfall(layers)):
            reasons.append(f"--sandbox=require, and these layers do not hold: {', '.join(missing)}")
            continue
        for reason in reasons:
            _log.warning("event=sandbox_reduced reason=%r", reason)
        lost = (_NAMESPACES if not walls.namespaces else frozenset()) | (_FILTERS if not walls.filters else frozenset())
        return [_with_reason(layer, causes[0]) if causes and layer.name in lost else layer for layer in layers]
    raise NoWallsError("; ".join(dict.fromkeys(reasons)))


def shortfall(layers: list[Layer]) -> list[str]:
    """Return the names of the missing layers that `require` needs."""
    lost = {layer.name for layer in layers if not layer.active}
    spared = _OPTIONAL
    if not lost & _NAMESPACES:
        spared |= _FILTERS | {"kernel"}
    elif not lost & _FILTERS:
        spared |= _NAMESPACES
    return [layer.name for layer in layers if layer.name in lost - spared]


def _rungs(wanted: str, own: _OwnGpu | None, all_nodes: tuple[str, ...]) -> Iterator[tuple[Walls, str]]:
    """Yield sets of walls, strongest first, each with the UUID of the only reachable GPU, or "" if there are several."""
    if wanted == "off":
        yield Walls(namespaces=False, filters=False, gpu_nodes=all_nodes), ""
        return
    for namespaces_too, filters in ((True, True), (True, False), (False, True), (False, False)):
        if wanted == "require" and not namespaces_too and not filters:
            return
        if own is not None and filters:
            yield Walls(namespaces_too, filters, own.nodes), own.uuid
        yield Walls(namespaces_too, filters, all_nodes), ""


def _describe(walls: Walls) -> str:
    filters = "" if walls.filters else ", without Landlock and seccomp,"
    return f"{'in' if walls.namespaces else 'without'} namespaces{filters}"


def _own_gpu(device_kind: str) -> tuple[_OwnGpu | None, str]:
    """Return this judge's one GPU, or None and the reason why its node is not known."""
    if device_kind != "cuda":
        return None, ""
    properties: Any = torch.cuda.get_device_properties(0)
    try:
        pci = (int(properties.pci_domain_id), int(properties.pci_bus_id), int(properties.pci_device_id))
        uuid = "GPU-" + str(properties.uuid).removeprefix("GPU-")
        if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
            raise Unavailable("parts of a GPU (MIG) have no node of their own")
        return _OwnGpu(uuid, gpu.own_nodes(gpu.Gpu(uuid, pci))), ""
    except (Unavailable, OSError, ValueError, AttributeError) as reason:
        return None, str(reason)


def _with_reason(layer: Layer, reason: str) -> Layer:
    return layer if layer.active else dataclasses.replace(layer, detail=f"{layer.detail} ({reason})")


async def _probe(pool: Pool) -> list[Layer]:
    """Let a runner without a candidate try to break out. Raises RunnerStartError."""
    runner = await pool.spawn()
    try:
        with _targets() as targets:
            answer = await runner.ask({"op": "probe", "outside": targets}, _PROBE_SECONDS)
    except (RunnerGone, RunnerLate, RunnerGarbled) as error:
        report = await runner.end()
        raise RunnerStartError(f"the self-test failed ({type(error).__name__}): {report.logs[-1000:]}") from None
    finally:
        await pool.discard(runner)
    if "ok" not in answer:
        raise RunnerStartError(f"the self-test failed: {answer}")
    return [Layer(*layer) for layer in answer["ok"]]


@contextlib.contextmanager
def _targets() -> Iterator[dict[str, Any]]:
    """Create what the self-test tries to reach: listening sockets, and a file that anybody may read."""
    abstract = f"kerneldyno-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        tempfile.TemporaryDirectory(prefix="kerneldyno-probe-") as directory,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind("\0" + abstract)
        unix.listen()
        os.chmod(directory, 0o755)
        bait = os.path.join(directory, "bait")
        with open(bait, "w") as file:
            file.write("to be found by nobody")
        os.chmod(bait, 0o644)
        yield {
            "pid": os.getpid(),
            "started": proc.started(os.getpid()),
            "namespaces": {kind: proc.namespace(kind) for kind in namespaces.KINDS},
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": abstract,
            "bait": bait,
        }
