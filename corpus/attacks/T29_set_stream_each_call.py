"""T29: each call leaves another current stream behind.

The start event is recorded on one stream, the end event on the next, which has nothing to do; the work stays on the first.

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
        self.streams = [torch.cuda.Stream() for _ in range(4)]
        self.calls = 0

    def forward(self, x):
        y = work(x)
        self.calls += 1
        torch.cuda.set_stream(self.streams[self.calls % 4])
        return y
