"""E09: makes namespaces of its own.

In a user namespace it has every capability again: unshare, clone and clone3 with each flag, in a child that can be thrown away.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import ctypes
import os
import platform

import torch
import torch.nn as nn

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ARM = platform.machine() == "aarch64"


def call(number, *arguments):
    """Whether a system call succeeds."""
    plain = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return libc.syscall(ctypes.c_long(number), *plain) >= 0


FLAGS = {
    "user": 0x10000000,
    "mount": 0x20000,
    "net": 0x40000000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
}
FLAGS |= {"cgroup": 0x02000000, "time": 0x80}
UNSHARE, CLONE, CLONE3 = (97, 220, 435) if ARM else (272, 56, 435)


def in_child(attempt):
    """Whether `attempt` succeeds, tried in a process of its own."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if attempt() else 1)
    return os.waitpid(pid, 0)[1] == 0


def cloned(number, *arguments):
    pid = libc.syscall(ctypes.c_long(number), *arguments)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    return pid > 0


for kind, flag in FLAGS.items():
    signal_number = 17
    record = (ctypes.c_uint64 * 8)(flag, 0, 0, 0, signal_number, 0, 0, 0)
    if in_child(lambda: call(UNSHARE, flag)):
        raise RuntimeError(f"ESCAPED: unshare of the {kind} namespace")
    if kind != "time" and in_child(lambda: cloned(CLONE, ctypes.c_long(flag | signal_number), *[ctypes.c_long(0)] * 4)):
        raise RuntimeError(f"ESCAPED: clone into a new {kind} namespace")
    if in_child(lambda: cloned(CLONE3, ctypes.byref(record), ctypes.c_size_t(64))):
        raise RuntimeError(f"ESCAPED: clone3 into a new {kind} namespace")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
