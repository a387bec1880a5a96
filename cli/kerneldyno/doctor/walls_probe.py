"""A program, not a module: try each layer of the sandbox in its own process and print, as JSON, which are available.

`sandbox` runs it in a separate process, because a process cannot leave a layer. It needs only the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_NAMESPACES = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
_MS_PRIVATE_RECURSIVE = 1 << 18 | 1 << 14
_LANDLOCK_CREATE_RULESET, _VERSION_FLAG = 444, 1
_PR_SET_SECCOMP, _MODE_FILTER, _EFAULT = 22, 2, 14
_NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Print {"namespaces": ..., "landlock": ..., "seccomp": ...}: "" for an available layer, else why it is not."""
    # Filters first: they are only queried, while namespaces are entered.
    found = {"landlock": _landlock(), "seccomp": _seccomp()}
    try:
        _enter_namespaces()
        found["namespaces"] = ""
    except OSError as error:
        found["namespaces"] = f"{error.filename or 'unshare'}: {error.strerror}"
    print(json.dumps(found))


def _landlock() -> str:
    if _libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG) >= 0:
        return ""
    return f"the kernel has none, or it is switched off ({os.strerror(ctypes.get_errno())})"


def _seccomp() -> str:
    _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0)  # without a filter: refused, and the error shows support
    error = ctypes.get_errno()
    return "" if error == _EFAULT else f"the kernel has no filters ({os.strerror(error)})"


def _enter_namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    flags = _NAMESPACES if _is_host_root() else _NAMESPACES | _NEWUSER
    _do("unshare", _libc.unshare(flags))
    if flags & _NEWUSER:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{_NOBODY} {uid} 1"), ("gid_map", f"{_NOBODY} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    # Only this process sees the mounts: first propagation is turned off, then a private root is tried.
    _do("mount", _libc.mount(b"none", b"/", None, _MS_PRIVATE_RECURSIVE, None))
    with tempfile.TemporaryDirectory() as folder:
        _do("mount", _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=64k"))
        _do("umount", _libc.umount2(folder.encode(), 0))


def _is_host_root() -> bool:
    """Return whether this process can become another user. Root of a container may know only itself."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= _NOBODY < first + count for first, _, count in ranges)


def _do(what: str, answer: int) -> None:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main()
