"""Landlock: the kernel refuses every access that the rules do not allow, in addition to mounts and permissions.

Newer kernels can refuse more kinds of access; kinds that this kernel does not know are left out. The restriction cannot
be undone, and holds for all processes started later. Source: https://docs.kernel.org/userspace-api/landlock.html;
values are from linux/landlock.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable

from ..shared import linux
from . import Unavailable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR = (1 << bit for bit in range(7))
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(7, 13))
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
#: Number of access rights by version: version, number of rights from it on.
_RIGHTS = ((1, 13), (2, 14), (3, 15), (5, 16))
_TCP = 0b11  # bind, connect; from version 4
_SCOPES = 0b11  # abstract Unix sockets, signals; from version 6

#: Read and execute.
READ = _READ_FILE | _READ_DIR | _EXECUTE
#: Read, and write to existing files.
UPDATE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE
#: Use a device, or the devices in a directory.
DEVICE = _READ_DIR | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE
#: Everything except creating device nodes.
OWN = READ | UPDATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM | _REFER


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock in this kernel. Raises Unavailable."""
    try:
        return linux.system_call("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError as error:
        raise Unavailable(f"the kernel has no Landlock, or it is switched off ({error.strerror})") from None


def restrict(rules: Iterable[tuple[str, int]]) -> str:
    """Refuse this process every access to files that `rules` does not allow.

    As far as the kernel can, also refuse TCP, and signals and abstract sockets to processes outside. This needs
    no_new_privs. Paths that are missing or not accessible are left out.

    Args:
        rules: Pairs of a path and the rights below it.

    Returns:
        What is refused, in words.

    Raises:
        Unavailable: The kernel has no Landlock.
        OSError: A call failed.
    """
    known = version()
    rights = (1 << max(bits for since, bits in _RIGHTS if since <= known)) - 1
    attributes = _Ruleset(rights, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = linux.system_call("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path, allowed in rules:
            _allow(ruleset, path, allowed & rights)
        linux.system_call("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    refused = ["files that a runner does not need"]
    if known >= 4:
        refused.append("TCP")
    if known >= 6:
        refused.append("signals and abstract sockets to other processes")
    return f"version {known}: {', '.join(refused)}"


def _allow(ruleset: int, path: str, allowed: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(parent).st_mode):
                allowed &= _OF_FILES
            rule = _PathBeneath(allowed, parent)
            linux.system_call("landlock_add_rule", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        finally:
            os.close(parent)
