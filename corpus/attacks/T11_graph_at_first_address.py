"""T11: a CUDA graph that reads whatever lies where the first inputs lay.

It is right whenever the caller uses the same memory again, as harnesses with one input buffer do; inputs at another address are never
looked at.

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
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.kept = x
            work(x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = work(x)
        self.graph.replay()
        return self.out
