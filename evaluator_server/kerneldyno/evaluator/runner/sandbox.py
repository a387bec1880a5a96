"""The walls around one candidate, raised in steps by the processes that lead to it.

Called by the warden, in this order: `leave_host` (new namespaces), `build_root` (a private, read-only file system),
and, in the candidate's own process just before its code runs, `give_up_powers` (uid, capabilities, limits, environment).

What is covered: no network, no sight of or signals to other processes, no System V or POSIX IPC with them, a read-only
view of the system with a private scratch on tmpfs, no secrets in the environment, bounded processes and files, death
with the warden. What is not covered: the GPU driver's own attack surface, side channels, and seccomp or Landlock rules.
"""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
import tempfile
from dataclasses import dataclass

from .. import linux

#: The uid and gid that candidates run under when the evaluator runs as root ("nobody").
NOBODY = 65534
#: Processes and threads that one candidate may have. CUDA and nvcc need a few dozen.
MAX_PROCESSES = 128
#: Largest file that a candidate may write, in bytes.
MAX_FILE_BYTES = 1 << 30
#: Open files of one candidate.
MAX_OPEN_FILES = 1024
#: Size of the private scratch, which lives in memory.
SCRATCH_BYTES = 1 << 30
#: Where the scratch is inside the sandbox.
SCRATCH = "/tmp/scratch"

#: Environment variables that a runner keeps: where libraries are, and nothing that could be a secret.
KEPT_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "TRITON_INTERPRET",
    "PYTHONPATH",
)

_SYSTEM_PATHS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/sys",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/run/nvidia-persistenced",
)
_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass(frozen=True, slots=True)
class Walls:
    """Which layers to raise."""

    #: New namespaces and a private root. Off where the kernel or a container forbids them.
    namespaces: bool


def host_is_root() -> bool:
    """Say whether this process has the powers of root on the host."""
    return os.geteuid() == 0


def leave_host(walls: Walls) -> None:
    """Enter new namespaces; children of this process will be in a new pid namespace. Raises OSError."""
    if not walls.namespaces:
        return
    flags = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    if host_is_root():
        # Root mounts first and enters a user namespace later, as nobody: mounts made by the host's root are then out of
        # reach even of a candidate that gains every capability of its own user namespace.
        linux.unshare(flags)
    else:
        uid, gid = os.getuid(), os.getgid()
        linux.unshare(flags | linux.CLONE_NEWUSER)
        _map_ids(uid, gid)


def _map_ids(uid: int, gid: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def build_root(walls: Walls, staging: str) -> None:
    """Give this mount namespace a root of its own: system and Python read-only, private /proc, /dev and scratch.

    `staging` is an existing empty directory; what is mounted there is seen by no other process. Must run inside the new
    pid namespace, since /proc shows the namespace of whoever mounts it (and CUDA fails without a matching /proc).
    """
    if not walls.namespaces:
        return
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", staging, "tmpfs", linux.MS_NOSUID, "mode=755,size=1m")
    for path in ("proc", "dev", "tmp"):
        os.mkdir(f"{staging}/{path}")
    linux.mount("tmpfs", f"{staging}/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
    _mount_devices(f"{staging}/dev")
    for path in _visible_paths():
        _bind_read_only(path, staging)
    linux.mount("proc", f"{staging}/proc", "proc", linux.MS_NOSUID)
    scratch = staging + SCRATCH
    os.mkdir(scratch)
    linux.mount(
        "tmpfs", scratch, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"mode=1777,size={SCRATCH_BYTES},nr_inodes=65536"
    )
    linux.mount(None, f"{staging}/tmp", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
    linux.mount(None, staging, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
    linux.pivot_root(staging)


def _visible_paths() -> list[str]:
    """Return the host paths that a candidate may read, outermost first, none inside another."""
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *sys.path]
    wanted = [*_SYSTEM_PATHS, *python, os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")]
    # A path component may be a link (…/python3.11 -> /opt/…): the target has to be there too.
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


def _mount_devices(dev: str) -> None:
    linux.mount("tmpfs", dev, "tmpfs", linux.MS_NOSUID, "mode=755,size=64k")
    nodes = [name for name in os.listdir("/dev") if name.startswith("nvidia")]
    for name in (*_PLAIN_DEVICES, *nodes):
        source, target = f"/dev/{name}", f"{dev}/{name}"
        if os.path.isdir(source):  # /dev/nvidia-caps
            os.mkdir(target)
        else:
            open(target, "x").close()
        linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    os.mkdir(f"{dev}/shm")
    linux.mount("tmpfs", f"{dev}/shm", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"mode=1777,size={SCRATCH_BYTES}")
    os.symlink("/proc/self/fd", f"{dev}/fd")
    linux.mount(None, dev, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)


def enter_scratch(walls: Walls, private: str) -> str:
    """Make the scratch the working directory and return it. `private` is used where there are no namespaces."""
    scratch = SCRATCH if walls.namespaces else private
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    os.chdir(scratch)
    return scratch


def give_up_powers(walls: Walls, scratch: str, extra_environment: dict[str, str]) -> None:
    """Become a powerless process with a clean environment. The last trusted step before the candidate's code."""
    if host_is_root():
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        # A change of uid makes /proc/self root's own; without this the id maps could not be written.
        linux.set_dumpable(True)
        if walls.namespaces:
            linux.unshare(linux.CLONE_NEWUSER)
            _map_ids(NOBODY, NOBODY)
    linux.drop_capabilities()
    linux.forbid_new_privileges()
    linux.die_with_parent()
    os.nice(15)  # a hundred spinning processes must not keep judge and warden from ending them
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, MAX_PROCESSES)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update(
        HOME=scratch,
        TMPDIR=scratch,
        XDG_CACHE_HOME=f"{scratch}/cache",
        TRITON_CACHE_DIR=f"{scratch}/triton",
        TORCH_EXTENSIONS_DIR=f"{scratch}/extensions",
        TORCHINDUCTOR_CACHE_DIR=f"{scratch}/inductor",
        CUDA_CACHE_PATH=f"{scratch}/cuda",
        PYTHONDONTWRITEBYTECODE="1",
        USER="candidate",
        **extra_environment,
    )
    tempfile.tempdir = None  # forget what the zygote's imports chose


def limit_address_space(nbytes: int) -> None:
    """Let this process map at most `nbytes` more than it has. Not for CUDA, which reserves far more than it uses."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _limit(resource.RLIMIT_AS, mapped + nbytes)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))
