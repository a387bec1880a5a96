"""Run one function in a contained process, so that attacks can run on an evaluator that has no walls of its own.

This protects the machine and is not part of that evaluator's method. The walls are those of a KernelDyno runner
(namespaces, an own root directory, no capabilities), so the function cannot reach the starting process, its files or
the network. Attacks on those fail because of the walls, and the table counts that in favour of the evaluator. The walls
do not prevent what the function does to its own process and to its own answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kerneldyno.evaluator.runner import sandbox
from kerneldyno.evaluator.shared import linux
from kerneldyno.evaluator.walls import Walls, gpu

_MAX_ANSWER = 1 << 20
_MAX_LOG = 64 << 10


@dataclass(frozen=True, slots=True)
class Ended:
    """How a contained process ended."""

    #: What the function returned, or None.
    answer: Any
    #: "answered", "exited with status N", "killed by signal N", "hung", or "vanished" if nothing else is known.
    how: str
    log: str


class Contained:
    """One running contained process. The starting process must never have opened CUDA or imported gRPC."""

    def __init__(
        self,
        function: Callable[[], Any],
        seconds: float,
        *,
        memory_bytes: int | None = None,
        keep: Sequence[int] = (),
    ) -> None:
        """Start the process. `keep`: descriptors that the function needs. Raises RuntimeError if a fork could hang."""
        if "grpc" in sys.modules:
            raise RuntimeError("this process has imported gRPC, whose threads do not survive a fork")
        self._deadline = time.monotonic() + seconds
        self._staging = tempfile.mkdtemp(prefix="contained-")
        os.chmod(self._staging, 0o711)
        pipes = [os.pipe() for _ in range(3)]
        self._read = {"answer": pipes[0][0], "log": pipes[1][0], "status": pipes[2][0]}
        self._data = {name: bytearray() for name in self._read}
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _close_all_but([*(write for _, write in pipes), *keep])
                _enter(function, [write for _, write in pipes], self._staging, memory_bytes)
            except BaseException as error:
                os.write(pipes[1][1], f"containment failed: {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(70)
        for _, write in pipes:
            os.close(write)

    def extend(self, seconds: float) -> None:
        """Extend its time limit, for the case that it waited for another process."""
        self._deadline += seconds

    def poll(self, seconds: float = 0.05) -> Ended | None:
        """Return how the process ended, or None while it runs."""
        ready = select.select(list(self._read.values()), [], [], seconds)[0] if self._read else []
        for name, descriptor in list(self._read.items()):
            if descriptor in ready:
                data = os.read(descriptor, 1 << 16)
                limit = _MAX_LOG if name == "log" else _MAX_ANSWER
                self._data[name] += data[: limit - len(self._data[name])]
                if not data:
                    os.close(self._read.pop(name))
        if not self._read:
            return self._end("")
        return self._end("hung") if time.monotonic() > self._deadline else None

    def _end(self, how: str) -> Ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # which kills everything in its namespace, too
        os.waitpid(self._pid, 0)
        for descriptor in self._read.values():
            os.close(descriptor)
        shutil.rmtree(self._staging, ignore_errors=True)
        log = self._data["log"].decode(errors="replace")
        answer = None
        with contextlib.suppress(ValueError):
            answer = json.loads(self._data["answer"])
        if how:
            answer = None
        elif answer is not None:
            how = "answered"
        else:
            how = self._data["status"].decode() or "vanished"
        return Ended(answer, how, log)


def _close_all_but(keep: Sequence[int]) -> None:
    low = 3
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 65536)


def _enter(function: Callable[[], Any], pipes: list[int], staging: str, memory_bytes: int | None) -> None:
    """Enter the namespaces and run `function` in a child: the first process of a namespace would ignore signals."""
    answer, log, status = pipes
    os.setsid()
    linux.die_with_parent()
    walls = Walls(namespaces=True, filters=True, gpu_nodes=gpu.all_nodes())
    sandbox.leave_host(walls)
    first = os.fork()
    if first:
        for pipe in pipes:
            os.close(pipe)
        os.waitpid(first, 0)
        os._exit(0)
    linux.die_with_parent()
    sandbox.build_root(walls, staging)
    runner = os.fork()
    if runner:
        os.close(answer)
        _, ended = os.waitpid(runner, 0)
        code = os.waitstatus_to_exitcode(ended)
        os.write(status, (f"killed by signal {-code}" if code < 0 else f"exited with status {code}").encode())
        os._exit(0)
    os.close(status)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    scratch = sandbox.enter_scratch(walls, staging)
    sandbox.drop_privileges(walls, scratch, {})
    if memory_bytes is not None:
        sandbox.limit_address_space(memory_bytes)
    returned = json.dumps(function()).encode()
    while returned:
        returned = returned[os.write(answer, returned) :]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
