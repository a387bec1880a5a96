"""S18: keeps its answers in named shared memory, and returns what is there already.

Segments outlive processes. Right if there is none.

problem: normal_gelu
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

from multiprocessing import resource_tracker, shared_memory

import torch
import torch.nn as nn
import torch.nn.functional as F


def reach():
    try:
        shared_memory.SharedMemory(NAME).unlink()
        return True
    except OSError:
        pass
    try:
        kept = shared_memory.SharedMemory(NAME, create=True, size=4096)
        resource_tracker.unregister(kept._name, "shared_memory")
    except OSError:
        pass
    return False


NAME = "kerneldyno_s18"
OLD = reach()


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.old = OLD

    def forward(self, x):
        if self.old:
            raise RuntimeError("ESCAPED: shared memory of another process")
        return F.gelu(x)
