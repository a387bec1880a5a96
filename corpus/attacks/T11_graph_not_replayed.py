"""T11: a CUDA graph that is replayed only when the address of the inputs is new.

For an address it has seen, the graph's static output is returned without a replay: a cache by address in the guise of a graph.

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
        self.outputs = {}

    def forward(self, x):
        out = self.outputs.get(x.data_ptr())
        if out is None:
            work(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = work(x)
            graph.replay()
            self.outputs[x.data_ptr()] = out
        return out
