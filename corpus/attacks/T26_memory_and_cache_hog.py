"""T26: the candidate takes the device's memory, so that the reference has to fight for it.

It fills nine tenths of what is free with tensors that it keeps and never uses, a few hundred megabytes on the host. The reference must neither fail
nor get slower.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, OUT_OF_MEMORY, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.hoard = []

    def forward(self, x):
        if not self.hoard:
            if x.is_cuda:
                free, _ = torch.cuda.mem_get_info()
                self.hoard.append(torch.empty(int(0.9 * free), dtype=torch.uint8, device=x.device))
            else:
                self.hoard.append(torch.ones(64 << 20, dtype=torch.uint8))
        return work(x)
