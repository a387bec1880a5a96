"""Checks of the machine: system, memory, open files, scratch, journal, clocks. For `kerneldyno doctor`."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kerneldyno.doctor.checks import Check, State, gib
from kerneldyno.doctor.database import database

#: Free bytes below which there is a note, and below which nothing works.
_LITTLE_SPACE, _NO_SPACE = 2 * 2**30, 64 * 2**20
#: Most bytes that one candidate may store in scratch and /dev/shm together.
_CANDIDATE_BYTES = 2**30
_LITTLE_MEMORY = 2 * 2**30
#: File descriptors: a scheduler needs one per connection, an evaluator about ten per runner.
_FEW_FILES, _TOO_FEW_FILES = 4_096, 512
#: Seconds of fsync above which acceptances become slow, because a commit waits for it.
_SLOW_SYNC = 0.05
_NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre", "beegfs"}
#: Seconds for which wall clock and monotonic clock are compared, and how far they may drift apart meanwhile.
_CLOCK_SAMPLE, _CLOCK_DRIFT = 0.25, 0.02
#: From linux/timex.h: adjtimex() returns the first, or sets the second in its status, if no service synchronizes the
#: clock.
_TIME_ERROR, _STA_UNSYNC = 5, 0x40


def system() -> Iterator[Check]:
    """Yield a finding on the operating system, its cores and its memory."""
    if platform.system() != "Linux":
        text = f"{platform.system()}: clients run anywhere, the services on Linux"
        yield Check("system", State.NOTE, text, "start scheduler and evaluators on Linux machines")
        return
    cores = len(os.sched_getaffinity(0))
    memory = {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines()
    }
    total, free = memory["MemTotal"], memory.get("MemAvailable", memory["MemFree"])
    text = f"Linux {platform.release()} {platform.machine()}, {_distribution()}, {cores} cores, "
    text += f"{gib(free)} of {gib(total)} memory free"
    if free < _LITTLE_MEMORY:
        yield Check("system", State.NOTE, text, "stop other programs here: a candidate may take 2 GiB")
    else:
        yield Check("system", State.OK, text)


def open_files() -> Iterator[Check]:
    """Yield a finding on the limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} at once"
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        state = State.FAILED if soft < _TOO_FEW_FILES else State.NOTE
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
        yield Check("open files", state, text, f"ulimit -n {wanted}, or LimitNOFILE=65536 in the systemd unit")
    else:
        yield Check("open files", State.OK, text)


def shared_memory(path: str = "/dev/shm") -> Iterator[Check]:
    """Yield a finding on the space in /dev/shm, which candidates without namespaces and CUDA's libraries use."""
    if not os.path.isdir(path):
        yield Check(path, State.NOTE, "not there", f"mount -t tmpfs -o size=2G,mode=1777 tmpfs {path}")
        return
    free = _free(path)
    if free < _CANDIDATE_BYTES:
        yield Check(
            path,
            State.NOTE,
            f"{gib(free)} free; a candidate may take {gib(_CANDIDATE_BYTES)}",
            f"mount -o remount,size=2G {path}; for a container --shm-size=2g",
        )
    else:
        yield Check(path, State.OK, f"{gib(free)} free")


def scratch() -> Iterator[Check]:
    """Yield findings on the folder of temporary files: candidates' scratch folders, and compilers' output."""
    name, remedy = "scratch", "set TMPDIR to a folder with room, on a local disk"
    try:
        folder = tempfile.gettempdir()
        _write(folder)
    except OSError as error:
        yield Check(name, State.FAILED, error.strerror or str(error), remedy)
        return
    free = _free(folder)
    text = f"{folder}, {gib(free)} free"
    if free < _NO_SPACE:
        yield Check(name, State.FAILED, text, remedy)
    elif os.statvfs(folder).f_flag & os.ST_NOEXEC:
        yield Check(name, State.FAILED, f"{folder} is mounted noexec: compiled kernels cannot be loaded", remedy)
    else:
        yield Check(
            name, State.OK if free >= _LITTLE_SPACE else State.NOTE, text, "" if free >= _LITTLE_SPACE else remedy
        )


def journal(store: str | None) -> Iterator[Check]:
    """Yield findings on the folder of the scheduler's journal.

    Args:
        store: the scheduler's --store; None for its default.
    """
    name = "journal"
    store = store or os.environ.get("KERNELDYNO_STORE", "").strip() or None
    if store is not None and store.startswith(("postgresql://", "postgres://")):
        yield from database(store)
        return
    if store == "memory":
        yield Check(name, State.NOTE, "memory: a crash loses accepted work", "--store sqlite:PATH, on a local disk")
        return
    wanted = (Path(store.removeprefix("sqlite:")) if store else _default_journal()).absolute().parent
    folder = next(path for path in (wanted, *wanted.parents) if path.exists())  # the scheduler creates missing folders
    where = f"{wanted}" if folder == wanted else f"{wanted} (will be created in {folder})"
    try:
        seconds = _write(str(folder))
    except OSError as error:
        yield Check(
            name,
            State.FAILED,
            f"{where} cannot be written: {error.strerror}",
            "make room, or give the scheduler --store sqlite:PATH on another disk",
        )
        return
    free, kind = _free(str(folder)), _filesystem(str(folder))
    text = f"{where}: {gib(free)} free, a synced write takes {seconds * 1e3:.1f} ms"
    if free < _NO_SPACE:
        yield Check(name, State.FAILED, text, "make room: when the disk is full nothing is accepted")
    elif kind in _NETWORK_FILESYSTEMS:
        yield Check(name, State.FAILED, f"{text}; on {kind}", "SQLite needs a local disk: --store sqlite:PATH")
    elif kind == "tmpfs":
        yield Check(name, State.NOTE, f"{text}; in memory", "use a local disk: a restart of the machine loses it")
    elif free < _LITTLE_SPACE:
        yield Check(name, State.NOTE, text, "make room, or lower --retain-bytes: the journal may take 4 GiB and more")
    elif seconds > _SLOW_SYNC:
        yield Check(name, State.NOTE, text, "use a faster disk: each acceptance and result waits for a synced write")
    else:
        yield Check(name, State.OK, text)


def clocks() -> Iterator[Check]:
    """Yield a finding on the wall clock: its rate against the monotonic clock, and whether it is synchronized."""
    name = "clock"
    wall, steady = time.time(), time.monotonic()
    time.sleep(_CLOCK_SAMPLE)
    drift = (time.time() - wall) - (time.monotonic() - steady)
    remedy = "let chrony or systemd-timesyncd keep the time: timedatectl set-ntp true"
    if abs(drift) > _CLOCK_DRIFT:
        yield Check(name, State.NOTE, f"the wall clock jumped by {drift:+.3f} s during the check", remedy)
    elif (synchronized := _synchronized()) is False:
        yield Check(name, State.NOTE, "steady, but the kernel says that nothing keeps it in time", remedy)
    else:
        yield Check(name, State.OK, "steady" + (", kept in time" if synchronized else ""))


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "a distribution without a name")
    except OSError:
        return "a distribution without a name"


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _write(folder: str) -> float:
    """Write a small file there, sync and remove it; return the seconds that syncing took.

    Raises:
        OSError: it cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * 4096)
        file.flush()
        started = time.monotonic()
        os.fsync(file.fileno())
        return time.monotonic() - started


def _default_journal() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state, "kerneldyno", "scheduler.sqlite")


def _filesystem(path: str) -> str:
    """Return the type of file system at `path`, "" if unknown."""
    found = ("", "")
    try:
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind = line.split()[:3]
            if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(found[0]):
                found = (point, kind)
    except OSError:
        pass
    return found[1]


def _synchronized() -> bool | None:
    """Return whether the kernel considers its clock synchronized; None if it does not say."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    # struct timex: modes (all zero: only query), offset, freq, maxerror, esterror (longs), then status.
    buffer = ctypes.create_string_buffer(512)
    answer = adjtimex(buffer)
    if answer < 0:
        return None
    long = ctypes.sizeof(ctypes.c_long)
    status = ctypes.c_int.from_buffer(buffer, 5 * long).value
    return not (answer == _TIME_ERROR and status & _STA_UNSYNC)
