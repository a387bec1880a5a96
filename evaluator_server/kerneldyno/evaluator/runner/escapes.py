"""Attempts to break out of the sandbox, for the self-test.

Each returns if it succeeds, and raises OSError if it is stopped. A successful attempt does no harm: it only looks, or
undoes its change. The runner that makes the attempts is not used again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import socket
import stat
from typing import Any

from ..shared import linux, proc

_PTRACE_SEIZE = 0x4206
_CALLS = {  # the numbers on x86-64 and aarch64
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
}
_KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING = 0, -3


def _call(name: str, *arguments: object) -> int:
    return linux.system_call(name, _CALLS[name][linux.MACHINE == "aarch64"], *arguments)


def connect_tcp(target: dict[str, Any]) -> None:
    """Connect to the judge's listening socket."""
    with socket.socket() as sock:
        sock.settimeout(2)
        sock.connect(("127.0.0.1", target["tcp"]))


def send_udp(target: dict[str, Any]) -> None:
    """Connect to the judge's datagram socket or to another host."""
    # 192.0.2.1 is reserved for documentation (RFC 5737). Connecting a datagram socket to it sends no packet: with a
    # network it succeeds, and without one there is no route.
    last: OSError | None = None
    for address in (("127.0.0.1", target["udp"]), ("192.0.2.1", 9)):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.connect(address)
            return
        except OSError as error:
            last = error
    assert last is not None
    raise last


def connect_abstract(target: dict[str, Any]) -> None:
    """Connect to the judge's abstract socket, which has a name but no file."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(2)
        sock.connect("\0" + target["abstract"])


def signal_judge(target: dict[str, Any]) -> None:
    """Check whether this process may signal the judge."""
    os.kill(_judge(target), 0)


def list_processes(target: dict[str, Any]) -> None:
    """Find a process other than this one in /proc."""
    if not proc.processes() - {os.getpid()}:
        raise ProcessLookupError(errno.ESRCH, "none is listed")


def trace_judge(target: dict[str, Any]) -> None:
    """Attach to the judge as a debugger does."""
    _call("ptrace", _PTRACE_SEIZE, _judge(target), 0, 0)


def read_judge(target: dict[str, Any]) -> None:
    """Read the judge's memory by a system call."""
    here = ctypes.create_string_buffer(8)
    span = (ctypes.c_size_t * 2)(ctypes.addressof(here), 8)
    _call("process_vm_readv", _judge(target), span, 1, span, 1, 0)


def read_others(target: dict[str, Any]) -> None:
    """Read memory or environment of another process by a file in /proc."""
    last: OSError = ProcessLookupError(errno.ESRCH, "no other process is there")
    listed = proc.processes()
    with contextlib.suppress(ProcessLookupError):
        listed.add(_judge(target))
    for pid in (listed | {1}) - {os.getpid()}:
        for name in ("environ", "mem", "maps"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    if name == "mem" or file.read(1):
                        return
            except OSError as error:
                last = error
    raise last


def _judge(target: dict[str, Any]) -> int:
    """Return the judge's pid. Raises ProcessLookupError if in this namespace the number belongs to another process."""
    pid = int(target["pid"])
    try:
        started = proc.started(pid)
    except FileNotFoundError:
        return pid  # it is hidden or absent; the attempt shows which
    if started != target["started"]:
        raise ProcessLookupError(errno.ESRCH, "the judge is not there")
    return pid


def write_outside(target: dict[str, Any]) -> None:
    """Create a file outside the scratch."""
    directories = [os.path.dirname(os.__file__), "/", "/etc", "/tmp", "/var/tmp", "/dev", "/run"]
    directories += [os.path.dirname(os.path.dirname(target["bait"])), os.path.dirname(os.getcwd())]
    if os.path.exists("/dev/shm") and os.stat("/dev/shm").st_dev != os.stat(".").st_dev:
        directories.append("/dev/shm")  # it is not this runner's own
    last: OSError | None = None
    for directory in directories:
        path = f"{directory}/kerneldyno-probe-{os.getpid()}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError as error:
            last = error
            continue
        os.unlink(path)
        return
    assert last is not None
    raise last


def read_bait(target: dict[str, Any]) -> None:
    """Read a file that everybody on the host may read, or find other directories beside this runner's scratch."""
    with contextlib.suppress(OSError):
        beside = os.path.dirname(os.getcwd())
        if any(name.isdigit() and f"{beside}/{name}" != os.getcwd() for name in os.listdir(beside)):
            return
    with open(target["bait"]):
        pass


def make_device(target: dict[str, Any]) -> None:
    """Create a device node that needs no privilege (0:0, a whiteout). Only Landlock forbids it."""
    os.mknod("node", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    os.unlink("node")


def unshare_nothing(target: dict[str, Any]) -> None:
    """Make a system call that does nothing and always succeeds, unless a filter forbids it."""
    _call("unshare", 0)


def use_unneeded_kernel_features(target: dict[str, Any]) -> None:
    """Use parts of the kernel that no GPU kernel needs."""
    buffer = ctypes.create_string_buffer(256)
    attempts: list[tuple[str, tuple[object, ...]]] = [
        ("bpf", (0, buffer, 0)),
        ("perf_event_open", (buffer, 0, -1, -1, 0)),
        ("userfaultfd", (0,)),
        ("io_uring_setup", (0, buffer)),
        ("keyctl", (_KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING, 0)),
    ]
    last: OSError | None = None
    for name, arguments in attempts:
        try:
            _call(name, *arguments)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                return  # the kernel executed the call and rejected only its arguments
            last = error
    assert last is not None
    raise last


def mount(target: dict[str, Any]) -> None:
    """Mount a file system."""
    linux.mount("tmpfs", os.getcwd(), "tmpfs", 0)
    linux.unmount(os.getcwd())


def new_user_namespace(target: dict[str, Any]) -> None:
    """Become root of a new user namespace, with every capability in it. Try this last: it cannot be undone."""
    linux.unshare(linux.CLONE_NEWUSER)


def open_other_gpus(target: dict[str, Any]) -> None:
    """Open the device nodes of more than one GPU."""
    opened = []
    for name in sorted(os.listdir("/dev")) if os.access("/dev", os.R_OK) else []:
        if re.fullmatch(r"nvidia\d+", name):
            with contextlib.suppress(OSError):
                os.close(os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC))
                opened.append(name)
    if len(opened) < 2:
        raise PermissionError(errno.EACCES, f"in reach: {', '.join(opened) or 'none'}")
