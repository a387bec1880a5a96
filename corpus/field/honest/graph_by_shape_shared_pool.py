"""Graphs by the number of rows, rounded up to a power of two, in one memory pool: inputs are padded, outputs cut.

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
        self.pool = None

    def _run(self, x):
        return x + self.down(F.silu(self.up(x)))

    def _capture(self, rows, x):
        given = torch.zeros(rows, x.shape[1], dtype=x.dtype, device=x.device)
        side = torch.cuda.Stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side), torch.no_grad():
            self._run(given)
        torch.cuda.current_stream(x.device).wait_stream(side)
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, pool=self.pool):
            out = self._run(given)
        return graph, given, out

    def forward(self, x):
        rows = 1 << (x.shape[0] - 1).bit_length()
        if rows not in self.graphs:
            self.graphs[rows] = self._capture(rows, x)
        graph, given, out = self.graphs[rows]
        given[: x.shape[0]].copy_(x)
        graph.replay()
        return out[: x.shape[0]].clone()
