"""E09: changes the machine itself.

Names, clocks, modules, swap, accounting, ports; reboot and kexec with arguments that no kernel obeys.

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


buffer = ctypes.create_string_buffer(512)
names = {
    "sethostname": (161 if ARM else 170, ctypes.c_char_p(b"kerneldyno-escape"), 17),
    "setdomainname": (162 if ARM else 171, ctypes.c_char_p(b"kerneldyno-escape"), 17),
    "swapon": (224 if ARM else 167, ctypes.c_char_p(b"/nonexistent"), 0),
    "acct": (89 if ARM else 163, 0),
    "delete_module": (106 if ARM else 176, ctypes.c_char_p(b"no_such_module"), 0x800),
    "init_module": (105 if ARM else 175, buffer, 512, ctypes.c_char_p(b"")),
    "reboot": (142 if ARM else 169, 0, 0, 0, 0),
    "syslog": (116 if ARM else 103, 3, buffer, 512),
}
for name, (number, *arguments) in names.items():
    if call(number, *arguments):
        raise RuntimeError(f"ESCAPED: {name}")
if not ARM and (call(172, 3) or call(173, 0x80, 1, 1)):
    raise RuntimeError("ESCAPED: iopl or ioperm")
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError:
    pass
else:
    raise RuntimeError("ESCAPED: runs in real time")
try:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
except OSError:
    pass
else:
    raise RuntimeError("ESCAPED: has a higher priority than the judge")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
