"""seccomp: refuses, with an ordinary error, system calls that no GPU kernel needs and that could attack the machine.

It lists the refused calls, not the allowed ones: CUDA, compilers and torch use too many calls that differ by version.
The refused calls were chosen so that all of these still work; `socket()` as a whole, for example, cannot be refused,
because cuInit then fails. The filter cannot be undone, and holds for all processes started later. Source: seccomp(2);
the filter is classic BPF, see linux/filter.h.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Sequence

from ..shared import linux
from . import Unavailable

_SET_MODE_FILTER = 1
#: Without this flag, older kernels switch off speculation for a process with a filter, and candidates would run slower.
_SPECULATION_ALLOWED = 1 << 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_AT_NUMBER, _AT_MACHINE, _AT_ARGUMENTS = 0, 4, 16
#: First number of the x32 interface on x86-64, which is another way to make the same calls.
_X32 = 0x40000000

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Calls that are always refused: name, number on x86-64, number on aarch64; None if the call does not exist.
_REFUSED: tuple[tuple[str, int | None, int | None], ...] = (
    # Memory and descriptors of other processes.
    ("ptrace", 101, 117),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("process_madvise", 440, 440),
    ("process_mrelease", 448, 448),
    ("kcmp", 312, 272),
    ("pidfd_getfd", 438, 438),
    # Mounts and namespaces.
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("pivot_root", 155, 41),
    ("chroot", 161, 51),
    ("open_tree", 428, 428),
    ("move_mount", 429, 429),
    ("fsopen", 430, 430),
    ("fsconfig", 431, 431),
    ("fsmount", 432, 432),
    ("fspick", 433, 433),
    ("mount_setattr", 442, 442),
    ("open_tree_attr", 467, 467),
    ("setns", 308, 268),
    ("unshare", 272, 97),
    # Files by handle instead of path.
    ("name_to_handle_at", 303, 264),
    ("open_by_handle_at", 304, 265),
    # Large parts of the kernel with many known bugs.
    ("bpf", 321, 280),
    ("perf_event_open", 298, 241),
    ("userfaultfd", 323, 282),
    ("io_uring_setup", 425, 425),
    ("io_uring_enter", 426, 426),
    ("io_uring_register", 427, 427),
    ("add_key", 248, 217),
    ("request_key", 249, 218),
    ("keyctl", 250, 219),
    ("fanotify_init", 300, 262),
    ("fanotify_mark", 301, 263),
    ("modify_ldt", 154, None),
    # Control of the machine itself.
    ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294),
    ("create_module", 174, None),
    ("init_module", 175, 105),
    ("finit_module", 313, 273),
    ("delete_module", 176, 106),
    ("reboot", 169, 142),
    ("swapon", 167, 224),
    ("swapoff", 168, 225),
    ("acct", 163, 89),
    ("quotactl", 179, 60),
    ("quotactl_fd", 443, 443),
    ("iopl", 172, None),
    ("ioperm", 173, None),
    ("syslog", 103, 116),
    ("vhangup", 153, 58),
    ("settimeofday", 164, 170),
    ("clock_settime", 227, 112),
    ("clock_adjtime", 305, 266),
    ("adjtimex", 159, 171),
    ("sethostname", 170, 161),
    ("setdomainname", 171, 162),
    ("nfsservctl", 180, 42),
    ("lookup_dcookie", 212, 18),
    ("uselib", 134, None),
    # A candidate's own filter could return false results to the harness's system calls.
    ("seccomp", 317, 277),
)
#: Objects that outlive their process. Refused if the candidate has no IPC namespace of its own.
_SHARED_OBJECTS = (("shmget", 29, 194), ("semget", 64, 190), ("msgget", 68, 186), ("mq_open", 240, 180))

_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
_IOCTL, _PERSONALITY, _PRCTL, _PRLIMIT = (16, 29), (135, 92), (157, 167), (302, 261)
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_PERSONALITIES = (0, 0xFFFFFFFF)  # Linux, and a query of the current one
_PR_SET_SECCOMP = 22

_Instruction = tuple[int, int, int, int]


def install(*, own_network: bool, own_ipc: bool) -> str:
    """Refuse the calls from now on. This needs no_new_privs.

    Args:
        own_network: The candidate has its own network namespace. Otherwise internet sockets are refused, too.
        own_ipc: The candidate has its own IPC namespace. Otherwise System V objects are refused, too.

    Returns:
        What is refused, in words.

    Raises:
        Unavailable: There is no filter for this machine, or the kernel cannot filter.
        OSError: The call failed.
    """
    machine = linux.MACHINE
    if machine not in _MACHINES:
        raise Unavailable(f"no list of system calls for {machine}")
    instructions = program(machine, own_network=own_network, own_ipc=own_ipc)
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
    number = 317 if machine == "x86_64" else 277
    try:
        linux.system_call("seccomp", number, _SET_MODE_FILTER, _SPECULATION_ALLOWED, filter_program)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
        raise Unavailable(f"the kernel cannot filter system calls ({error.strerror})") from None
    rules = sum(value & 0xFFFF0000 == _ERRNO for *_, value in instructions)
    return f"{rules} rules; interfaces of other machines are refused"


def program(machine: str, *, own_network: bool, own_ipc: bool) -> list[_Instruction]:
    """Return the filter for `machine` as instructions: (code, jump if true, jump if false, value)."""
    arm = machine == "aarch64"
    families: list[int] = [socket.AF_UNIX, socket.AF_NETLINK]
    if own_network:
        families += [socket.AF_INET, socket.AF_INET6]
    refused = _REFUSED if own_ipc else (*_REFUSED, *_SHARED_OBJECTS)
    lines: list[_Instruction] = [
        (_LOAD, 0, 0, _AT_MACHINE),
        (_EQUAL, 1, 0, _MACHINES[machine]),
        _refuse(errno.ENOSYS),
        (_LOAD, 0, 0, _AT_NUMBER),
    ]
    if not arm:
        lines += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    for entry in refused:
        number = entry[2] if arm else entry[1]
        if number is not None:
            lines += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    # After ENOSYS, glibc uses clone(), whose flags are not behind a pointer and can be checked.
    lines += [(_EQUAL, 0, 1, _CLONE3[arm]), _refuse(errno.ENOSYS)]
    lines += _on_argument(_CLONE[arm], 0, (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _refuse(errno.EPERM))
    for number in (_SOCKET[arm], _SOCKETPAIR[arm]):
        lines += _unless_one_of(number, 0, families, errno.EAFNOSUPPORT)
    lines += _unless_one_of(_PERSONALITY[arm], 0, _PERSONALITIES, errno.EPERM)
    lines += _unless_one_of(_PRLIMIT[arm], 0, [0], errno.EPERM)
    lines += _on_argument(_PRCTL[arm], 0, (_EQUAL, 0, 1, _PR_SET_SECCOMP), _refuse(errno.EPERM))
    for command in _TERMINAL_INPUT:
        lines += _on_argument(_IOCTL[arm], 1, (_EQUAL, 0, 1, command), _refuse(errno.EPERM))
    return [*lines, (_RETURN, 0, 0, _ALLOW)]


def _refuse(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _on_argument(number: int, argument: int, *body: _Instruction) -> list[_Instruction]:
    """Run `body` on the low half of an argument of call `number`, then continue with the number loaded again."""
    load = (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * argument)
    return [(_EQUAL, 0, len(body) + 2, number), load, *body, (_LOAD, 0, 0, _AT_NUMBER)]


def _unless_one_of(number: int, argument: int, allowed: Sequence[int], refusal: int) -> list[_Instruction]:
    checks = [(_EQUAL, len(allowed) - index, 0, value) for index, value in enumerate(allowed)]
    return _on_argument(number, argument, *checks, _refuse(refusal))
