"""T07: the host's clocks run at a hundredth of their speed.

time.perf_counter, monotonic, time, process_time and their _ns forms are replaced, in the module and wherever they were imported by name.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import sys
import time

import torch
import torch.nn as nn


def slowed(original, whole):
    begin = original()
    if whole:
        return lambda: begin + (original() - begin) // 100
    return lambda: begin + (original() - begin) / 100


for name in ("perf_counter", "monotonic", "time", "process_time", "thread_time"):
    for full, whole in ((name, False), (f"{name}_ns", True)):
        before = getattr(time, full)
        after = slowed(before, whole)
        for module in list(sys.modules.values()):
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if value is before and key != "before":
                    setattr(module, key, after)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        return work(x)
