"""The sandbox of one candidate. The processes that lead to it set it up in steps; each layer is a file in `..walls`.

The warden calls, in this order: `leave_host` (new namespaces), `build_root` (a private, read-only file system), and in
the candidate's own process just before its code runs `give_up_powers` (uid, capabilities, limits, environment, and last
Landlock and seccomp, which also forbid calls that could undo the rest).

What is covered: no network, other processes cannot be seen or signalled, no IPC with them, a read-only view of the
system with a private scratch of limited size in memory, one GPU, no secrets in the environment, limits of processes and
files, and the runner dies with the warden. What is not covered: bugs in the kernel or the GPU driver, and side
channels. `probe` tests all of this when a judge starts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from ..shared import linux
from ..walls import Layer, Unavailable, Walls, landlock, limits, namespaces, root, seccomp

#: Environment variables that a runner keeps: where libraries are, and nothing that could be secret.
KEPT_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "TRITON_INTERPRET",
    "PYTHONPATH",
)


#: Layers that report when they are set up in this process, because their effect alone does not show them; for the
#: self-test.
raised: dict[str, Layer] = {}


def leave_host(walls: Walls) -> None:
    """Enter new namespaces. Children of this process will be in a new pid namespace. Raises OSError."""
    if walls.namespaces:
        namespaces.enter()


def build_root(walls: Walls, staging: str) -> None:
    """Build the private root of the new mount namespace in the empty directory `staging`. Raises OSError."""
    if walls.namespaces:
        root.build(staging, walls.gpu_nodes)


def enter_scratch(walls: Walls, private: str) -> str:
    """Make the scratch the working directory and return its path. Without namespaces it is `private`."""
    scratch = root.SCRATCH if walls.namespaces else private
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    if namespaces.host_is_root():
        os.chown(scratch, namespaces.NOBODY, namespaces.NOBODY)
    os.chmod(scratch, 0o700)
    os.chdir(scratch)
    return scratch


def give_up_powers(walls: Walls, scratch: str, extra_environment: dict[str, str]) -> None:
    """Drop all privileges and clean the environment. This is the last trusted step before the candidate's code."""
    if namespaces.host_is_root():
        os.setgroups([])
        os.setresgid(*[namespaces.NOBODY] * 3)
        os.setresuid(*[namespaces.NOBODY] * 3)
        # After a change of uid, root owns /proc/self; without this call the id maps could not be written.
        linux.set_dumpable(True)
        if walls.namespaces:
            namespaces.enter_user_namespace()
    linux.drop_capabilities()
    linux.forbid_new_privileges()
    linux.die_with_parent()
    os.nice(15)  # judge and warden must get processor time to end busy candidates
    limits.lower(alone=walls.namespaces)
    _clean_environment(scratch, extra_environment)
    _set_up_filters(walls, scratch)


def _clean_environment(scratch: str, extra: dict[str, str]) -> None:
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
        KINETO_LOG_LEVEL="6",  # else the profiler logs to the candidate's output
        USER="candidate",
        **extra,
    )
    tempfile.tempdir = None  # forget the directory that the zygote's imports chose


def _set_up_filters(walls: Walls, scratch: str) -> None:
    if not walls.filters:
        return
    own = walls.namespaces
    filters: dict[str, Callable[[], str]] = {
        "landlock": lambda: landlock.restrict(_rules(walls, scratch)),
        "seccomp": lambda: seccomp.install(own_network=own, own_ipc=own),
    }
    for name, wall in filters.items():
        try:
            raised[name] = Layer(name, True, wall())
        except Unavailable as reason:
            raised[name] = Layer(name, False, str(reason))


def _rules(walls: Walls, scratch: str) -> list[tuple[str, int]]:
    """Return what Landlock allows. CUDA writes below /proc, and cuInit fails if it may not."""
    nodes = [(f"/dev/{name}", landlock.DEVICE) for name in (*root.PLAIN_DEVICES, *walls.gpu_nodes)]
    rules = [*nodes, ("/proc", landlock.UPDATE), (scratch, landlock.OWN)]
    if walls.namespaces:  # everything in the private root may be read
        return [*rules, ("/", landlock.READ), ("/dev/shm", landlock.OWN)]
    return [*rules, *((path, landlock.READ) for path in root.visible_paths())]


def limit_address_space(nbytes: int) -> None:
    """Let this process map at most `nbytes` more than now. Not for CUDA, which reserves far more than it uses."""
    limits.limit_address_space(nbytes)
