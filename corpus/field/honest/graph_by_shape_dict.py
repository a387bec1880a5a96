"""One graph for each shape, dtype and device, in a dict; inputs are copied in, outputs out.

problem: field_two_layer_mlp
backend: torch
outcome: CORRECT
devices: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.graphs = {}

    def _run(self, x):
        return x + self.down(F.silu(self.up(x)))

    def _capture(self, x):
        given = x.clone(memory_format=torch.contiguous_format)
        side = torch.cuda.Stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(2):  # libraries set themselves up
                self._run(given)
        torch.cuda.current_stream(x.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = self._run(given)
        return graph, given, out

    def forward(self, x):
        key = (tuple(x.shape), x.dtype, x.device)
        if key not in self.graphs:
            self.graphs[key] = self._capture(x)
        graph, given, out = self.graphs[key]
        given.copy_(x, non_blocking=True)
        graph.replay()
        y = torch.empty_like(out)
        y.copy_(out)
        return y
