"""The warden: one trusted process per runner that starts it, watches it, and ends it together with all its descendants.

The zygote forks it. It talks to the judge on the control socket: the judge may send `stop`, `cont`, `baseline`, `allow`
and `kill`. At the end the warden reports the runner's exit status, peak memory and captured output in one frame `exit`. In
a pid namespace the warden is process 1: no process inside can signal it, and when it ends, the kernel kills the others.
The warden never reads the candidate's channel to the judge.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from ..shared import linux, proc, wire
from ..walls import Layer, Walls, cgroup, limits, root
from . import sandbox

#: The module that a process runs, by its role; the zygote has imported what takes long.
PROGRAMS = {
    "runner": ".harness",
    "inspection": ".inspection",
    "rehearsal": ".rehearsal",
    "scout": ".scout",
    "sketch": ".sketch",
    "compiler": "..compiling.program",
}
#: How much captured output is kept, in bytes: from the beginning, and from the end.
LOG_HEAD_BYTES = 8 * 1024
LOG_TAIL_BYTES = 8 * 1024
#: Seconds between two checks of memory and processes.
_USAGE_INTERVAL = 0.1
#: Time limit in seconds for one exact count of shared memory.
_COUNTING_SECONDS = 0.05
#: Seconds between two checks of the size of a scratch without a quota.
_SCRATCH_INTERVAL = 0.5
#: Host memory in bytes of a runner's control group, beyond the candidate's limit: for Python, torch and a CUDA context.
_RUNNER_BYTES = 2 << 30
#: Seconds that a warden waits for its judge to read the report.
_REPORT_TIMEOUT_SECONDS = 10.0


def run(frame: wire.Frame, fds: list[int], staging: str, delegated: Path | str) -> int:
    """Start the runner that `frame` describes, watch it to its end, and return this process's exit status.

    Args:
        frame: The judge's request for a runner.
        fds: The runner's channel, the warden's control socket, and the memory files that judge and runner share.
        staging: The zygote's temporary directory.
        delegated: The control group in which the runner's group is made, or the reason why there is none.
    """
    walls = Walls(
        bool(frame["walls"]["namespaces"]), bool(frame["walls"]["filters"]), tuple(frame["walls"]["gpu_nodes"])
    )
    # Call this while the parent is the zygote: when the zygote dies, the warden must end too.
    linux.die_with_parent()
    group = _group(delegated, int(frame["memory_bytes"]))
    try:
        return _run(frame, fds, staging, walls, group)
    finally:
        if group is not None:
            group.remove()


def _run(frame: wire.Frame, fds: list[int], staging: str, walls: Walls, group: cgroup.Group | None) -> int:
    try:
        sandbox.leave_host(walls)
    except OSError as error:
        return _fail(fds, error)
    if not walls.namespaces:
        return _Warden(frame, fds, staging, walls, group).watch()
    # Only children enter the new pid namespace: fork once more, and let this process wait for the warden itself.
    inner = os.fork()
    if inner == 0:
        linux.die_with_parent()
        status = 70
        try:
            status = _run_inside(frame, fds, staging, walls, group)
        finally:
            os._exit(status)
    for fd in fds:
        os.close(fd)
    _, status = os.waitpid(inner, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _run_inside(frame: wire.Frame, fds: list[int], staging: str, walls: Walls, group: cgroup.Group | None) -> int:
    try:
        sandbox.build_root(walls, staging)
    except OSError as error:
        return _fail(fds, error)
    return _Warden(frame, fds, staging, walls, group).watch()


def _fail(fds: list[int], error: OSError) -> int:
    """Tell the waiting judge why no runner starts. This must not be used once there is a runner."""
    with socket.socket(fileno=fds[1]) as control:
        os.close(fds[0])
        _send_report(control, _exit_report(70, logs=error.strerror or str(error)))
    return 70


def _group(delegated: Path | str, memory_bytes: int) -> cgroup.Group | None:
    """Make the runner's control group if possible, and record the outcome for the self-test."""
    allowed = cgroup.Limits(_group_bytes(memory_bytes), limits.MAX_TASKS)
    reason, group = delegated, None
    if isinstance(delegated, Path):
        try:
            group = cgroup.Group(delegated, allowed)
        except OSError as error:
            reason = f"a group could not be made ({error.strerror})"
    detail = f"memory.max {allowed.memory_bytes >> 20} MiB, pids.max {allowed.processes}" if group else str(reason)
    sandbox.raised["cgroup"] = Layer("cgroup", group is not None, detail)
    return group


def _group_bytes(memory_bytes: int) -> int:
    """Return what the group of a runner may use, whose candidate may use `memory_bytes`."""
    return memory_bytes + root.SCRATCH_BYTES + _RUNNER_BYTES


@dataclass(slots=True)
class _Log:
    """Keeps the beginning and the end of an unbounded stream."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        room = LOG_HEAD_BYTES - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        excess = len(self.tail) - LOG_TAIL_BYTES
        if excess > 0:
            del self.tail[:excess]
            self.dropped += excess

    def text(self) -> str:
        gap = f"\n[... {self.dropped} bytes left out ...]\n" if self.dropped else ""
        return self.head.decode(errors="replace") + gap + self.tail.decode(errors="replace")


class _Warden:
    def __init__(
        self,
        frame: wire.Frame,
        fds: list[int],
        staging: str,
        walls: Walls,
        group: cgroup.Group | None,
    ) -> None:
        channel_fd, control_fd, *shared_fds = fds
        self._control = socket.socket(fileno=control_fd)
        self._walls = walls
        self._group = group
        self._memory_limit = int(frame["memory_bytes"])
        self._log = _Log()
        self._peak = 0
        #: Memory of the runner before a candidate was in it; None until the judge says that it is warm.
        self._baseline: int | None = None
        self._out_of_memory = False
        log_read, log_write = os.pipe2(os.O_CLOEXEC)
        self._private = f"{staging}/{os.getpid()}"
        self._runner = os.fork()
        if self._runner == 0:
            self._control.close()
            os.close(log_read)
            self._become_runner(frame, channel_fd, log_write, shared_fds)
        os.close(log_write)
        for fd in (channel_fd, *shared_fds):
            os.close(fd)
        # Without this, processes with the same uid could trace this one, if the evaluator is not root.
        linux.set_dumpable(False)
        if not walls.namespaces:
            linux.become_subreaper()
        self._log_read = log_read

    def _become_runner(self, frame: wire.Frame, channel_fd: int, log_write: int, shared_fds: list[int]) -> None:
        status = 70
        try:
            os.setsid()
            if self._group is not None:
                self._group.enter()
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log_write, 1)
            os.dup2(log_write, 2)
            keep = sorted({channel_fd, *shared_fds})
            _close_all_but(keep)
            scratch = sandbox.enter_scratch(self._walls, self._private)
            sandbox.drop_privileges(self._walls, scratch, dict(frame["environment"]))
            for stream in (sys.stdout, sys.stderr):  # a crash must not lose output in a buffer
                assert isinstance(stream, io.TextIOWrapper)
                stream.reconfigure(line_buffering=True)
            program = importlib.import_module(PROGRAMS[frame["role"]], __package__)
            program.run(socket.socket(fileno=channel_fd), shared_fds, frame, scratch)
            status = 0
        except BaseException:  # the log tells why a runner could not start
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def watch(self) -> int:
        """Serve the judge and read the log until the runner has ended or must end.

        Report, and leave no process behind.
        """
        runner = os.pidfd_open(self._runner)
        poll = select.poll()
        for fd in (self._control.fileno(), self._log_read, runner):
            poll.register(fd, select.POLLIN)
        exited = killed = over = False
        next_look = next_scratch_look = time.monotonic()
        while not exited:
            ready = dict(poll.poll(1000 * _USAGE_INTERVAL))
            if self._log_read in ready and not self._read_log():
                poll.unregister(self._log_read)
            if not killed and self._control.fileno() in ready and not self._execute_order():
                killed = True
                poll.unregister(self._control)
                self._signal_tree(signal.SIGKILL)
            if runner in ready:
                exited = True
            if not killed and time.monotonic() >= next_look:
                # Only the first reason counts: dying processes show other numbers. Forks may escape a single signal.
                over = over or self._uses_too_much()
                if over:
                    self._signal_tree(signal.SIGKILL)
                next_look = time.monotonic() + _USAGE_INTERVAL
            if not (killed or over or self._walls.namespaces) and time.monotonic() >= next_scratch_look:
                over = self._stores_too_much()
                next_scratch_look = time.monotonic() + _SCRATCH_INTERVAL
        _, status = os.waitpid(self._runner, 0)
        self._signal_tree(signal.SIGKILL)
        if not self._walls.namespaces:
            _reap_descendants()
            shutil.rmtree(self._private, ignore_errors=True)
        self._drain_log()
        if self._group is not None:
            self._out_of_memory |= self._group.ran_out_of_memory()
        code = os.waitstatus_to_exitcode(status)
        usage = {"out_of_memory": self._out_of_memory, "peak_memory_bytes": self._peak}
        _send_report(self._control, _exit_report(code, killed=killed, logs=self._log.text(), **usage))
        return 0

    def _execute_order(self) -> bool:
        """Execute one order of the judge. Return False if the runner must end."""
        received = wire.receive(self._control)
        if received is None:
            return False
        order = received[0].get("op")
        if order == "stop":
            self._signal_tree(signal.SIGSTOP)
            wire.send(self._control, {"op": "stopped"})
        elif order == "cont":
            self._signal_tree(signal.SIGCONT)
        elif order == "baseline":
            self._baseline = self._memory({self._runner})
        elif order == "allow":
            wire.send(self._control, {"op": "allowed", "failed": self._allow(int(received[0]["memory_bytes"]))})
        else:
            return False
        return True

    def _allow(self, memory_bytes: int) -> str:
        """Raise the limit of host memory. Return why that is not possible, or ""."""
        if self._group is not None:
            try:
                self._group.allow(_group_bytes(memory_bytes))
            except OSError as error:
                return f"the control group refused it ({error.strerror})"
        self._memory_limit = memory_bytes
        return ""

    def _signal_tree(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL and self._group is not None:
            self._group.kill()
        try:
            if self._walls.namespaces:
                os.kill(-1, number)  # all processes of this pid namespace except the warden (process 1)
            else:
                for pid in _descendants(os.getpid()):
                    os.kill(pid, number)
        except ProcessLookupError:
            pass

    def _uses_too_much(self) -> bool:
        """Check processes and memory.

        Return True if a limit is exceeded, and note which one in the log or the report.
        """
        pids = self._pids()
        excess = self._excess(pids)
        if not excess:
            used = self._memory(pids)
            self._peak = max(self._peak, used)
            if self._is_within_limit(used):
                return False
            excess = self._excess(self._pids())  # a fork bomb continues while its memory is counted
        if excess:
            self._log.add(f"\n[more than {excess}: killed]\n".encode())
        self._out_of_memory = not excess
        return True

    def _is_within_limit(self, used: int) -> bool:
        """Return True if the candidate may use so much. A runner that gets warm has none, but pages of its zygote."""
        return self._baseline is None or used - self._baseline <= self._memory_limit

    def _pids(self) -> set[int]:
        return proc.processes() - {1} if self._walls.namespaces else _descendants(os.getpid())

    def _excess(self, pids: set[int]) -> str:
        """Return which limit of processes is exceeded, in words, or "".

        The kernel limits threads, but without a user namespace it counts the threads of many candidates together.
        """
        if len(pids) > limits.MAX_PROCESSES:
            return f"{limits.MAX_PROCESSES} processes"
        if not self._walls.namespaces and sum(map(proc.threads, pids)) > limits.MAX_TASKS:
            return f"{limits.MAX_TASKS} processes and threads"
        return ""

    def _stores_too_much(self) -> bool:
        if not limits.scratch_is_full(self._private):
            return False
        self._log.add(f"\n[more than {root.SCRATCH_BYTES >> 20} MiB in the scratch: killed]\n".encode())
        return True

    def _memory(self, pids: set[int]) -> int:
        """Return the memory of processes `pids` in bytes. Near the limit, pages that they share are counted once."""
        resident = {pid: proc.resident_bytes(pid) for pid in pids}
        total = sum(resident.values())
        if self._is_within_limit(total) or len(pids) == 1:
            return total
        # Forked children share pages with their parent, so only proportional counting is fair. Reading it waits for
        # locks that a fork bomb keeps busy, and must not delay the judge's orders. So this counts the largest processes
        # first, at least two (a parent may have much memory of its own), until the time limit. It assumes that the rest
        # shares memory as the last counted process does, which is the nearest to them in size.
        until = time.monotonic() + _COUNTING_SECONDS
        counted = exact = last = 0
        for number, pid in enumerate(sorted(resident, key=lambda pid: -resident[pid])):
            last = proc.proportional_bytes(pid)
            exact += last
            counted += resident[pid]
            if number and time.monotonic() > until:
                break
        return exact + last * (total - counted) // max(resident[pid], 1)

    def _read_log(self) -> bool:
        data = os.read(self._log_read, 65536)
        self._log.add(data)
        return bool(data)

    def _drain_log(self) -> None:
        os.set_blocking(self._log_read, False)
        try:
            while self._read_log():
                pass
        except BlockingIOError:
            pass


def _exit_report(code: int, *, logs: str, killed: bool = False, **usage: int) -> wire.Frame:
    """Return the last frame to the judge. `code` is negative for a signal."""
    report = {"signal": max(-code, 0), "exit_code": code if code >= 0 else None, "killed": killed, "logs": logs}
    return {"op": "exit", "out_of_memory": False, "peak_memory_bytes": 0, **report, **usage}


def _send_report(control: socket.socket, report: wire.Frame) -> None:
    """Send the last frame and wait until the judge has read it."""
    with contextlib.suppress(OSError):  # the judge may be gone
        wire.send(control, report)
        # Closing the socket with unread orders would reset the connection, and the report could be lost.
        control.settimeout(_REPORT_TIMEOUT_SECONDS)
        while control.recv(4096):
            pass


def _close_all_but(keep: list[int]) -> None:
    low = 3
    for fd in keep:
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 65536)


def _descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in proc.processes():
        try:
            children.setdefault(proc.parent(pid), []).append(pid)
        except OSError:
            continue
    found: set[int] = set()
    pending = [root]
    while pending:
        for pid in children.get(pending.pop(), ()):
            if pid not in found:
                found.add(pid)
                pending.append(pid)
    return found


def _reap_descendants() -> None:
    """Kill and reap descendants until none is left: a candidate may fork while it is being killed."""
    deadline = time.monotonic() + 5
    while (pids := _descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)
