"""T26: kernels queued by the candidate keep the GPU busy while the reference is timed.

After each call seconds of spinning and of memory traffic are queued on side streams of low priority; the process may be stopped, its queue is not.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream(priority=0)
        self.load = torch.empty(64 << 20, dtype=torch.float32, device="cuda")
        self.busy = None

    def forward(self, x):
        y = work(x)
        if self.busy is None or self.busy.query():
            with torch.cuda.stream(self.side):
                for _ in range(200):
                    self.load.mul_(1.0)
                self.busy = self.side.record_event()
        return y
