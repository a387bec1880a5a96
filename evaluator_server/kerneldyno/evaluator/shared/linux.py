"""Thin, typed calls into Linux that Python's standard library lacks: namespaces, mounts, prctl, capabilities.

The sandbox, the warden and `startup` use them. Each raises an OSError that names the call. The values come from the
kernel's uapi headers.
"""

from __future__ import annotations

import ctypes
import os
import signal

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
#: The machine's architecture, which decides the numbers of system calls below 424.
MACHINE = os.uname().machine
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE, -1)
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}.get(MACHINE, -1)
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_LAST_CAPABILITY = 40


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def system_call(call: str, number: int, *arguments: object) -> int:
    """Make a system call that has no function in libc.

    Args:
        call: The name for the error message.
        number: The number of the system call.
        arguments: ctypes values, bytes, or ints of pointer size.

    Returns:
        The result of the call.

    Raises:
        OSError: The call failed.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        _check(result, call)
    return result


def unshare(flags: int) -> None:
    """Move this process into new namespaces; a new pid namespace applies only to children that it creates later."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Call mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def unmount(target: str) -> None:
    """Call umount2(2): detach the mount now; the kernel releases it when nothing uses it any more."""
    _check(_libc.umount2(target.encode(), ctypes.c_int(_MNT_DETACH)), f"umount2 {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def make_read_only(target: str) -> None:
    """Make the mount at `target`, and all mounts below it, read-only and nosuid."""
    attributes = _MountAttributes(attr_set=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID)
    size = ctypes.sizeof(attributes)
    arguments = (_AT_FDCWD, target.encode(), _AT_RECURSIVE, ctypes.byref(attributes), size)
    system_call(f"mount_setattr {target}", _SYS_MOUNT_SETATTR, *arguments)


def pivot_root(new_root: str) -> None:
    """Make `new_root` (a mount point) the root of this mount namespace and detach the old root."""
    os.chdir(new_root)
    system_call("pivot_root", _SYS_PIVOT_ROOT, b".", b".")
    unmount(".")
    os.chdir("/")


def _prctl(option: int, value: int, call: str) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero), call)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent dies. A change of uid clears this, so call it after that."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "prctl PDEATHSIG")


def become_subreaper() -> None:
    """Become the parent of orphaned descendants, so that this process can find and kill them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "prctl CHILD_SUBREAPER")


def set_dumpable(dumpable: bool) -> None:
    """Allow or forbid processes with the same uid to trace this one and to read its /proc files."""
    _prctl(_PR_SET_DUMPABLE, int(dumpable), "prctl DUMPABLE")


def forbid_new_privileges() -> None:
    """Make set-uid programs and file capabilities ineffective from now on."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "prctl NO_NEW_PRIVS")


def drop_capabilities() -> None:
    """Give up every capability, now and for all programs executed later."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, capability, "prctl CAPBSET_DROP")
        except OSError:
            # EINVAL: this kernel knows fewer capabilities. EPERM: this process holds none, so no bound is needed.
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    data = (ctypes.c_uint32 * 6)()
    system_call("capset", _SYS_CAPSET, header, data)
