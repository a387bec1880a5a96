"""Softmax in a CUDA graph: inputs are copied in at every call, and what is returned is a clone.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def _run(self, x, y):
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)

    def _capture(self, x):
        static_in = x.clone(memory_format=torch.contiguous_format)
        static_out = torch.empty_like(static_in)
        self._run(static_in, static_out)  # compiled before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run(static_in, static_out)
        return graph, static_in, static_out

    def forward(self, x):
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self._capture(x)
        graph, static_in, static_out = self.graphs[x.shape]
        static_in.copy_(x)
        graph.replay()
        return static_out.clone()
