"""R02: a reference reads, traces and signals whatever it can name.

The judge, candidates and other problems: their memory and environment, ptrace, and the permission to send a signal.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import ctypes
import os

import torch
import torch.nn as nn

libc = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH = 16, 17
others = {int(name) for name in os.listdir("/proc") if name.isdigit()} | {1, os.getppid()}
in_namespace = os.getppid() == 1
if len(others - {1, os.getpid(), 0}) > 0 and in_namespace:
    raise RuntimeError(f"ESCAPED: sees processes {others}")
for pid in others - {os.getpid(), 0}:
    for name, flags in (("mem", os.O_RDWR), ("mem", os.O_RDONLY), ("environ", os.O_RDONLY), ("maps", os.O_RDONLY)):
        try:
            descriptor = os.open(f"/proc/{pid}/{name}", flags)
            data = os.read(descriptor, 64) if name != "mem" else b"opened"
            os.close(descriptor)
        except OSError:
            continue
        if data:
            raise RuntimeError(f"ESCAPED: /proc/{pid}/{name}")
    if libc.ptrace(ATTACH, pid, 0, 0) == 0:
        libc.ptrace(DETACH, pid, 0, 0)
        raise RuntimeError(f"ESCAPED: traces process {pid}")
    if not in_namespace:
        try:
            os.kill(pid, 0)
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: may signal process {pid}")


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
