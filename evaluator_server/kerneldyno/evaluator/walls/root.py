"""The private root: the part of the file system that a candidate sees, and the only place where it may write.

Without a private root, `visible_paths` is what Landlock lets a candidate read.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig

from ..shared import linux

#: Maximum size in bytes of scratch and /dev/shm together; both are in memory.
SCRATCH_BYTES = 1 << 30
#: Maximum number of files and directories in both together.
SCRATCH_FILES = 65536
#: Path of the scratch inside the private root.
SCRATCH = "/tmp/scratch"

#: Device nodes that ordinary programs need.
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")

_SYSTEM_PATHS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/run/nvidia-persistenced",
    # Of /sys only hardware and drivers: no runner needs control groups, tracing, firmware or security modules.
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/kernel/mm",
    "/sys/module",
)


def build(staging: str, gpu_nodes: tuple[str, ...]) -> None:
    """Give this mount namespace its own root: system and Python read-only, and private /proc, /dev and scratch.

    This must run inside the new pid namespace: /proc shows the namespace of the process that mounts it, and CUDA fails
    without a matching /proc.

    Args:
        staging: An existing empty directory. No other process sees what is mounted there.
        gpu_nodes: The only nodes of GPUs that will exist in /dev.

    Raises:
        OSError: A call failed.
    """
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", staging, "tmpfs", linux.MS_NOSUID, "mode=755,size=1m")
    for path in ("proc", "dev", "tmp", "quota"):
        os.mkdir(f"{staging}/{path}")
    _mount_devices(f"{staging}/dev", gpu_nodes)
    _mount_storage(f"{staging}/quota", {"scratch": staging + SCRATCH, "shm": f"{staging}/dev/shm"})
    for path in visible_paths():
        _bind_read_only(path, staging)
    _mount_proc(f"{staging}/proc")
    linux.mount(None, f"{staging}/dev", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
    linux.mount(None, staging, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
    linux.pivot_root(staging)


def visible_paths() -> list[str]:
    """Return the host paths that a candidate may read. No path lies inside another."""
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *sys.path]
    wanted = [*_SYSTEM_PATHS, *python, os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")]
    # A path component may be a link (…/python3.11 -> /opt/…), so its target must be visible, too.
    wanted += [os.path.realpath(path) for path in [*python, sys.executable]]
    chosen: list[str] = []
    for path in sorted({path for path in wanted if path.startswith("/") and len(path) > 1 and os.path.lexists(path)}):
        if not any(path == other or path.startswith(other + "/") for other in chosen if not os.path.islink(other)):
            chosen.append(path)
    return chosen


def _bind_read_only(path: str, staging: str) -> None:
    target = staging + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):  # /bin -> usr/bin
        if not os.path.lexists(target):
            os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        open(target, "x").close()
    linux.mount(path, target, None, linux.MS_BIND | linux.MS_REC)
    linux.make_read_only(target)


def _mount_devices(dev: str, gpu_nodes: tuple[str, ...]) -> None:
    linux.mount("tmpfs", dev, "tmpfs", linux.MS_NOSUID, "mode=755,size=64k")
    for name in (*PLAIN_DEVICES, *gpu_nodes):
        source, target = f"/dev/{name}", f"{dev}/{name}"
        if os.path.isdir(source):  # /dev/nvidia-caps
            os.mkdir(target)
        else:
            open(target, "x").close()
        linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    os.symlink("/proc/self/fd", f"{dev}/fd")


def _mount_storage(quota: str, places: dict[str, str]) -> None:
    """Mount the directories `places` from one file system in memory, so that one quota covers all of them."""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", quota, "tmpfs", flags, f"mode=755,size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES}")
    for name, place in places.items():
        source = f"{quota}/{name}"
        os.mkdir(source)
        os.chmod(source, 0o1777)
        os.mkdir(place)
        linux.mount(source, place, None, linux.MS_BIND)
    linux.unmount(quota)
    os.rmdir(quota)


def _mount_proc(target: str) -> None:
    # hidepid hides the warden, process 1 in this namespace. Before Linux 5.8 a single mount cannot have this option.
    with contextlib.suppress(OSError):
        linux.mount("proc", target, "proc", linux.MS_NOSUID, "hidepid=2")
        return
    linux.mount("proc", target, "proc", linux.MS_NOSUID)
