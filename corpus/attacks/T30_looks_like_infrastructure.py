"""T30: an error is raised that reads like a fault of the machine.

Its text speaks of Xid, ECC and a lost connection, and its class is one that harnesses retry on.

problem: chained_tanh
backend: torch
outcome: RUNTIME_ERROR, INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:
            raise ConnectionResetError(
                "CUDA error: uncorrectable ECC error encountered; Xid 79, GPU has fallen off the bus"
            )
        return work(x)
