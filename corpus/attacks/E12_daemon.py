"""E12: leaves a process behind.

Forked twice, in a session of its own, every signal ignored, with no parent that would miss it: it runs on while others are judged.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import signal
import time

import torch
import torch.nn as nn


def daemon():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 256)
    end = time.monotonic() + 90
    while time.monotonic() < end:
        time.sleep(0.01)
    os._exit(0)


daemon()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
