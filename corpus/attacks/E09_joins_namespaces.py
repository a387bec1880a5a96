"""E09: joins the namespaces of other processes.

setns by a process's files, by pidfd, and by everything that is open.

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


import glob

SETNS = 268 if ARM else 308
own = {os.readlink(f"/proc/self/ns/{kind}") for kind in os.listdir("/proc/self/ns")}
for path in glob.glob("/proc/[0-9]*/ns/*"):
    try:
        if os.readlink(path) in own:
            continue
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        continue
    if call(SETNS, descriptor, 0):
        raise RuntimeError(f"ESCAPED: joined {path}")
for pid in (1, os.getppid()):
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        continue
    for flag in (0x20000, 0x40000000, 0x20000000):
        if pid != os.getpid() and call(SETNS, handle, flag):
            raise RuntimeError(f"ESCAPED: joined a namespace of process {pid}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
