"""E09: becomes root again.

Set-uid calls, capabilities, ambient capabilities, and every set-uid program that is in sight.

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
import stat
import subprocess


def stays(attempt):
    try:
        attempt()
    except (OSError, subprocess.SubprocessError):
        pass
    with open("/proc/self/status") as file:
        powers = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff"))
    if os.geteuid() == 0 or powers:
        raise RuntimeError(f"ESCAPED: uid {os.geteuid()}, capabilities {powers:x}")


stays(lambda: os.setuid(0))
stays(lambda: os.setresuid(0, 0, 0))
stays(lambda: os.setgroups([0]))
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
full = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
stays(lambda: call(91 if ARM else 126, header, full))
stays(lambda: call(167 if ARM else 157, 47, 2, 21, 0, 0))
tools = [path for place in ("/bin", "/usr/bin", "/usr/sbin") for path in glob.glob(f"{place}/*")]
for path in tools:
    try:
        if not os.stat(path).st_mode & stat.S_ISUID:
            continue
        ran = subprocess.run(
            [path, "-n", "id"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        continue
    if b"uid=0" in ran.stdout:
        raise RuntimeError(f"ESCAPED: root by {path}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
