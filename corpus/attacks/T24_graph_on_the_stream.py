"""T24: all work is inside a CUDA graph, on the caller's stream.

It hides kernels from a profiler that does not look into graphs. By any other clock it is honest.

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
            self.static = x.clone()
            work(self.static)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = work(self.static)
        self.static.copy_(x)
        self.graph.replay()
        return self.out.clone()
