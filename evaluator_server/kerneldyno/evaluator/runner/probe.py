"""The sandbox's self-test: a runner without a candidate tries to break out, and reports which layers held.

It runs once when a judge starts; `GetCapabilities` shows the answers. Where possible, attempts prove a layer. Otherwise
the kernel's own information about this process does.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

import torch

from ..devices.base import Device
from ..shared import proc
from ..walls import Layer, limits, root
from . import escapes, sandbox

_Attempt = Callable[[dict[str, Any]], None]

#: Kind in /proc/self/ns, name of the layer, and effect of each namespace.
_NAMESPACES = (
    ("user", "user_namespace", "its capabilities have no effect outside, and it has its own process limits"),
    ("pid", "pid_namespace", "other processes can be neither seen nor signalled"),
    ("net", "network_namespace", "no interface except its own loopback"),
    ("ipc", "ipc_namespace", "no System V or POSIX IPC with other processes"),
    ("mnt", "mount_namespace", "a private root: system and Python read-only, nothing else"),
)


def probe(target: dict[str, Any], device: Device) -> list[Layer]:
    """Test each layer.

    Args:
        target: The sockets and files that the judge offers as targets, and its own view of the host.
        device: The device, which must still work.

    Returns:
        The layers, each with whether it is active.
    """
    status = proc.facts(proc.STATUS)
    alone = proc.namespace("user") != target["namespaces"]["user"]
    return [
        *(
            Layer(name, proc.namespace(kind) != target["namespaces"][kind], detail)
            for kind, name, detail in _NAMESPACES
        ),
        _filter("landlock", escapes.make_device, target),
        _filter("seccomp", escapes.unshare_nothing, target),
        sandbox.raised.get("cgroup", Layer("cgroup", False, "not tried")),
        _denied(
            *("network", "TCP, UDP and abstract sockets to the outside fail", target),
            *(escapes.connect_tcp, escapes.send_udp, escapes.connect_abstract),
        ),
        _denied("processes", "signals to the judge fail", target, escapes.signal_judge),
        _denied("process_list", "other processes are not listed in /proc", target, escapes.list_processes),
        _denied(
            *("memory_of_others", "tracing the judge and reading memory or environment of others fail", target),
            *(escapes.trace_judge, escapes.read_judge, escapes.read_others),
        ),
        _denied("files", "writing outside the scratch fails", target, escapes.write_outside),
        _denied("private_files", "reading others' files and scratches fails", target, escapes.read_bait),
        _denied("one_gpu", "no other GPU can be opened", target, escapes.open_other_gpus),
        _scratch(),
        Layer("unprivileged_uid", os.getuid() != 0, f"runs as uid {os.getuid()}"),
        Layer("no_capabilities", int(status.get("CapEff", "1"), 16) == 0, "holds no capability and can gain none"),
        Layer("no_new_privs", status.get("NoNewPrivs") == "1", "set-uid programs do not work"),
        Layer(
            "rlimits",
            # The limit must not be below what is promised. If many runners share it, a host may allow fewer in total.
            limits.MAX_TASKS <= resource.getrlimit(resource.RLIMIT_NPROC)[1] <= limits.most_tasks(alone=alone),
            f"at most {limits.MAX_PROCESSES} processes, {limits.MAX_TASKS} with their threads,"
            f" {limits.MAX_OPEN_FILES} open files, no core dumps",
        ),
        Layer(
            "clean_environment", "HOME" in os.environ and len(os.environ) < 24, "no variables of the host except paths"
        ),
        _works(device),
        _denied(
            *("kernel", "mounts, user namespaces, bpf, perf, userfaultfd, io_uring and keyrings are refused", target),
            *(escapes.use_unneeded_kernel_features, escapes.mount, escapes.new_user_namespace),
        ),
    ]


def _denied(name: str, detail: str, target: dict[str, Any], *tried: _Attempt) -> Layer:
    """Return a layer that is active if every attempt failed; otherwise it names the attempts that succeeded."""
    stopped, succeeded = [], []
    for attempt in tried:
        try:
            attempt(target)
            succeeded.append(attempt.__name__)
        except OSError as error:
            stopped.append(error.strerror or str(error))
    if succeeded:
        return Layer(name, False, f"does not hold: {detail} (succeeded: {', '.join(succeeded)})")
    return Layer(name, True, f"{detail} ({', '.join(dict.fromkeys(stopped))})")


def _filter(name: str, attempt: _Attempt, target: dict[str, Any]) -> Layer:
    """Return the layer of a filter. It is active if it was set up and stops a call that nothing else forbids."""
    layer = sandbox.raised.get(name, Layer(name, False, "not set up"))
    return (
        layer if not layer.active or _denied(name, "", target, attempt).active else Layer(name, False, "has no effect")
    )


def _scratch() -> Layer:
    scratch = os.statvfs(".")
    if os.getcwd() != root.SCRATCH:
        size = root.SCRATCH_BYTES >> 20
        return Layer("scratch_quota", True, f"the warden kills a runner that stores more than {size} MiB")
    bounded = scratch.f_blocks * scratch.f_frsize <= root.SCRATCH_BYTES and scratch.f_files <= root.SCRATCH_FILES
    shared = os.stat("/dev/shm").st_dev == os.stat(".").st_dev
    detail = (
        f"scratch and /dev/shm together hold {root.SCRATCH_BYTES >> 20} MiB in {root.SCRATCH_FILES} files, in memory"
    )
    return Layer("scratch_quota", bounded and shared, detail)


def _works(device: Device) -> Layer:
    """Check that the device works inside the sandbox; a sandbox in which it does not would be useless."""
    try:
        total = torch.ones(1024, device=device.torch_device).add_(1).sum().item()
        device.synchronize()
    except RuntimeError as error:
        return Layer("device", False, f"the device does not work in the sandbox: {str(error)[:200]}")
    return Layer("device", total == 2048, "a kernel in the complete sandbox gives the right result")
