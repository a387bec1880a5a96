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

from kerneldyno.client.doctor.checks import Check, State, gib

#: Bytes below which there is a note, and below which nothing works.
_LITTLE_SPACE, _NO_SPACE = 2 * 2**30, 64 * 2**20
#: What one candidate may store in scratch and /dev/shm together.
_CANDIDATE_BYTES = 2**30
_LITTLE_MEMORY = 2 * 2**30
#: Descriptors: a scheduler needs one a connection, an evaluator some ten for each runner.
_FEW_FILES, _TOO_FEW_FILES = 4_096, 512
#: A commit waits for fsync. Beyond this (seconds) acceptances become slow.
_SLOW_SYNC = 0.05
_NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre", "beegfs"}
#: Wall clock against monotonic clock: how long they are compared, and how far they may drift apart meanwhile (seconds).
_CLOCK_SAMPLE, _CLOCK_DRIFT = 0.25, 0.02
#: linux/timex.h: adjtimex() answers this, or has this bit in its status, while nothing keeps the clock in time.
_TIME_ERROR, _STA_UNSYNC = 5, 0x40


def system() -> Iterator[Check]:
    """The operating system, its cores and its memory."""
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
        yield Check("system", State.NOTE, text, "end what else runs here: a candidate may take 2 GiB")
    else:
        yield Check("system", State.OK, text)


def open_files() -> Iterator[Check]:
    """The limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} at once"
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        state = State.FAILED if soft < _TOO_FEW_FILES else State.NOTE
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
        yield Check("open files", state, text, f"ulimit -n {wanted}, or LimitNOFILE=65536 in the systemd unit")
    else:
        yield Check("open files", State.OK, text)


def shared_memory(path: str = "/dev/shm") -> Iterator[Check]:
    """Room in /dev/shm: where candidates without namespaces, and CUDA's libraries, share memory."""
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
    """Where temporary files go: candidates' scratches, and what compilers make."""
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
    """The folder of the scheduler's journal; `store` as the scheduler's --store, None for its default."""
    name = "journal"
    if store == "memory":
        yield Check(name, State.NOTE, "memory: a crash loses accepted work", "--store sqlite:PATH, on a local disk")
        return
    wanted = (Path(store.removeprefix("sqlite:")) if store else _default_journal()).absolute().parent
    folder = next(path for path in (wanted, *wanted.parents) if path.exists())  # the scheduler makes what is missing
    where = f"{wanted}" if folder == wanted else f"{wanted} (to be made in {folder})"
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
        yield Check(name, State.NOTE, f"{text}; in memory", "a local disk: a restart of the machine loses it")
    elif free < _LITTLE_SPACE:
        yield Check(name, State.NOTE, text, "make room, or lower --retain-bytes: the journal may take 4 GiB and more")
    elif seconds > _SLOW_SYNC:
        yield Check(name, State.NOTE, text, "a faster disk: each acceptance and result waits for a synced write")
    else:
        yield Check(name, State.OK, text)


def clocks() -> Iterator[Check]:
    """Return whether the wall clock runs as fast as the monotonic one, and whether something keeps it in time."""
    name = "clock"
    wall, steady = time.time(), time.monotonic()
    time.sleep(_CLOCK_SAMPLE)
    drift = (time.time() - wall) - (time.monotonic() - steady)
    remedy = "let chrony or systemd-timesyncd keep the time: timedatectl set-ntp true"
    if abs(drift) > _CLOCK_DRIFT:
        yield Check(name, State.NOTE, f"the wall clock jumped by {drift:+.3f} s while it was watched", remedy)
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
    """Write a small file there, syncs and removes it. Returns the seconds that syncing took. Raises OSError."""
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
    """The kind of file system below `path`, "" when unknown."""
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
    """Return whether the kernel believes its clock; None where it does not tell."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    # struct timex: modes (all zero: only ask), offset, freq, maxerror, esterror (longs), then status.
    buffer = ctypes.create_string_buffer(512)
    answer = adjtimex(buffer)
    if answer < 0:
        return None
    long = ctypes.sizeof(ctypes.c_long)
    status = ctypes.c_int.from_buffer(buffer, 5 * long).value
    return not (answer == _TIME_ERROR and status & _STA_UNSYNC)
