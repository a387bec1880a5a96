"""The zygote: a process that has imported torch and triton, has never used CUDA, and forks runners on demand.

`python -m kerneldyno.evaluator.runner.zygote --fd N` reads frames from its judge on a Unix socket. Each asks for one
runner and brings the runner's descriptors. The zygote stays single-threaded and opens no device, so a forked runner is
clean and ready at once. The zygote ends when its judge ends, and all processes that it forked end with it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import tempfile
from pathlib import Path
from unittest import mock

from ..shared import linux, startup, wire
from ..walls import Unavailable, cgroup
from . import sandbox  # nothing that imports torch: this program first restarts with a clean environment

#: Set in the environment of a zygote that has restarted without its parent's secrets.
_CLEAN = "KERNELDYNO_ZYGOTE_CLEAN"


def main() -> None:
    """Import what candidates need, then fork runners until the judge closes its end."""
    parser = argparse.ArgumentParser(description="Forks runners. Started by the evaluator server.")
    parser.add_argument("--fd", type=int, required=True, help="socket to the judge")
    parser.add_argument("--device", default="cpu:0", help="device of the runners: cpu:0 or cuda:N")
    parser.add_argument("--builder", action="store_true", help="prepare for the processes of a builder as well")
    parser.add_argument("--exit-with-parent", type=int, default=0, metavar="PID", help="exit when process PID ends")
    args = parser.parse_args()
    _restart_without_secrets(args.device)
    if args.exit_with_parent:
        startup.die_with(args.exit_with_parent)
    linux.become_subreaper()
    gc.disable()  # objects of imported modules stay alive, and searching them takes a tenth of the time of the imports
    try:
        _import_libraries(args.device.partition(":")[0])
        if args.builder:
            _import_builder_programs()
    finally:
        gc.enable()  # otherwise torch's bindings report leaks at exit, and these hide the real error
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="kerneldyno-") as staging, socket.socket(fileno=args.fd) as judge:
        os.chmod(staging, 0o711)  # runners without namespaces use it with another uid
        wire.send(judge, {"op": "zygote_ready"})
        # Imported objects stay alive anyway. If the collector does not touch them, their pages stay shared with
        # runners.
        gc.freeze()
        _serve(judge, staging, _delegated_group(args.exit_with_parent or os.getpid()))


def _delegated_group(family: int) -> Path | str:
    """Return the control group in which runners get their groups, or the reason why there is none."""
    try:
        return cgroup.delegated(family)
    except (Unavailable, OSError) as reason:
        return str(reason)


def _restart_without_secrets(device: str) -> None:
    """Execute this program again with a clean environment: a runner can read the original one in /proc."""
    if os.environ.get(_CLEAN):
        return
    wanted = {name: os.environ[name] for name in sandbox.KEPT_ENVIRONMENT if name in os.environ}
    wanted.update(PYTHONSAFEPATH="1", PYTHONDONTWRITEBYTECODE="1", **startup.device_environment(device))
    if device.startswith("cpu"):
        # Triton reads TRITON_INTERPRET when a kernel is decorated; torch's OpenMP reads its variable when it starts.
        wanted.update(TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    else:
        wanted.pop("TRITON_INTERPRET", None)
    wanted[_CLEAN] = "1"
    os.execve(sys.executable, [sys.executable, "-m", f"{__package__}.zygote", *sys.argv[1:]], wanted)


def _import_libraries(kind: str) -> None:
    import torch
    import triton
    import triton.language

    from . import harness, warden  # noqa: F401

    harness.preload(kind)
    _import_rules_without_memory()
    if kind != "cpu":
        _import_machinery_for_libraries()
        for name in (".rehearsal", ".pretended_compiler"):
            importlib.import_module(name, __package__)
    with contextlib.suppress(ImportError):  # otherwise Triton imports its fifty modules at the first launch
        import triton.experimental.gluon  # noqa: F401
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        sys.exit("the zygote has initialized CUDA, so its children could not use CUDA")


def _import_machinery_for_libraries() -> None:
    import torch

    # torch.utils.cpp_extension asks for GPUs in order to warn. CUDA would be initialized, and forks could not use it.
    with mock.patch.object(torch.cuda, "is_available", return_value=True):
        importlib.import_module(".libraries", __package__)


def _import_builder_programs() -> None:
    _import_machinery_for_libraries()
    _import_rules_without_memory()
    from ..compiling import program  # noqa: F401
    from . import scout, sketch  # noqa: F401


def _import_rules_without_memory() -> None:
    """Have torch import its rules for tensors without memory, which it does when they are first needed.

    They bring sympy, which takes a quarter of a second. Every problem's process needs them, for the sizes of its inputs.
    """
    import numpy.random  # noqa: F401  (seeding would import it in each process)
    import torch

    with torch.device("meta"):
        torch.randn(1)
        made = torch.nn.functional.conv2d(torch.empty(1, 1, 3, 3), torch.empty(1, 1, 3, 3))
        torch.empty_like(made)


def _serve(judge: socket.socket, staging: str, delegated: Path | str) -> None:
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        readable, _, _ = select.select([judge.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            _reap()
        if judge.fileno() in readable:
            received = wire.receive(judge)
            if received is None:
                return
            frame, fds = received
            child = os.fork()
            if child == 0:
                _become_warden(judge, (wake_read, wake_write), frame, fds, staging, delegated)
            for fd in fds:
                os.close(fd)


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _become_warden(
    judge: socket.socket,
    wake: tuple[int, int],
    frame: wire.Frame,
    fds: list[int],
    staging: str,
    delegated: Path | str,
) -> None:
    """Run the warden in the forked child. Never returns."""
    status = 70  # EX_SOFTWARE
    try:
        from . import warden

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        judge.close()
        for fd in wake:
            os.close(fd)
        status = warden.run(frame, fds, staging, delegated)
    except BaseException as error:  # the child must never return into the zygote's loop
        sys.stderr.write(f"warden failed: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
    os._exit(0)  # skip the exit handlers: torch and Triton do not exit quietly
