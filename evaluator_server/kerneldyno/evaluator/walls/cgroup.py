"""A control group (version 2) for each runner: the kernel counts its memory and processes, and can kill them together.

This works only if the evaluator's own group is delegated to it, for example by systemd's `Delegate=yes`, or as root of
a container with a writable /sys/fs/cgroup. The kernel allows limits only below a group without processes. So the zygote
first moves the evaluator's processes, and no others, into their own group `kerneldyno`; the runners' groups are beside
it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from . import Unavailable

#: Group of all processes of the evaluator that are not runners.
_OURS = "kerneldyno"
_RUNNER_PREFIX = "kerneldyno-runner-"
_CONTROLLERS = frozenset({"memory", "pids"})
#: How often moving all processes is tried: a process that starts meanwhile is found at the next try.
_MOVES = 5
#: Seconds for which an emptied group may stay busy.
_BUSY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a runner's group may use."""

    memory_bytes: int
    processes: int


def delegated(family: int, root: Path = Path("/")) -> Path:
    """Return the group in which runners get their groups. Each zygote calls this once.

    Args:
        family: The pid of the evaluator's process.
        root: The root of the file system.

    Raises:
        Unavailable: There is no such group.
    """
    mount, own = _mounted(root), _own_group(root)
    group = mount / own.lstrip("/")
    if not group.is_dir():
        raise Unavailable("the evaluator's control group is not in the mounted hierarchy")
    if group.name == _OURS:  # another cell has already moved the processes
        group = group.parent
    lacking = _CONTROLLERS - _words(group / "cgroup.controllers")
    if lacking:
        raise Unavailable(f"no {' and '.join(sorted(lacking))} controller in {own}")
    try:
        if _CONTROLLERS - _words(group / "cgroup.subtree_control"):
            _hand_down(group, family, root)
        for left in group.glob(f"{_RUNNER_PREFIX}*"):  # left by wardens that were killed
            with contextlib.suppress(OSError):
                left.rmdir()
        trial = group / f"{_RUNNER_PREFIX}{os.getpid()}-trial"
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise Unavailable(f"other processes than the evaluator's are in its control group {own}") from None
        raise Unavailable(f"the control group {own} is not delegated to the evaluator ({error.strerror})") from None
    return group


def _hand_down(group: Path, family: int, root: Path) -> None:
    for _ in range(_MOVES):
        inside = {int(pid) for pid in _words(group / "cgroup.procs")}
        if ours := inside & _family(family, root):
            (group / _OURS).mkdir(exist_ok=True)
            for pid in ours:
                with contextlib.suppress(ProcessLookupError):
                    (group / _OURS / "cgroup.procs").write_text(str(pid))
        try:
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(_CONTROLLERS)))
        except OSError as error:
            if error.errno != errno.EBUSY or not ours:
                raise
        else:
            return
    raise OSError(errno.EBUSY, "new processes were started again and again")


def _family(first: int, root: Path) -> set[int]:
    """Return `first` and its descendants."""
    parents: dict[int, int] = {}
    for entry in (root / "proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {first}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return found


def _mounted(root: Path) -> Path:
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return root / before.split()[4].lstrip("/")
    raise Unavailable("control groups of version 2 are not mounted")


def _own_group(root: Path) -> str:
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    raise Unavailable("this process is in no control group of version 2")


def _words(file: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return set(file.read_text().split())
    return set()


class Group:
    """One runner's group. It uses open directories, so it works even after this process's file system has changed."""

    def __init__(self, parent: Path, limits: Limits) -> None:
        """Make the group. Raises OSError."""
        self._name = f"{_RUNNER_PREFIX}{os.getpid()}"
        self._parent = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.mkdir(self._name, dir_fd=self._parent)
            self._own = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._parent)
            self._write("memory.max", str(limits.memory_bytes))
            self._write("pids.max", str(limits.processes))
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                with contextlib.suppress(OSError):  # not every kernel counts swap
                    self._write(name, value)
        except BaseException:
            self.remove()
            raise

    def enter(self) -> None:
        """Move this process, and with it its later children, into the group."""
        self._write("cgroup.procs", "0")

    def allow(self, memory_bytes: int) -> None:
        """Let the group use so much memory from now on. Raises OSError."""
        self._write("memory.max", str(memory_bytes))

    def kill(self) -> None:
        """Kill every process in the group at once. Linux before 5.14 cannot; then the caller must kill them."""
        with contextlib.suppress(OSError):
            self._write("cgroup.kill", "1")

    def ran_out_of_memory(self) -> bool:
        """Return True if the kernel has killed the group because of its memory."""
        try:
            with open(os.open("memory.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._own)) as file:
                counts = dict(line.split() for line in file)
        except OSError:
            return False
        return int(counts.get("oom_kill", "0")) > 0

    def remove(self) -> None:
        """Remove the group. It must be empty, or become empty within a second."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                os.rmdir(self._name, dir_fd=self._parent)
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    time.sleep(0.01)
                    continue
            return

    def _write(self, name: str, text: str) -> None:
        file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._own)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
