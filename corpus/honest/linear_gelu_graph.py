"""Linear layer and GELU in one CUDA graph: inputs copied in, the output cloned, weights read where they are.

problem: linear_gelu
backend: triton
outcome: CORRECT
devices: cuda
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_kernel(h_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(h_ptr + at, mask=at < count, other=0.0)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + at, x * tl.sigmoid(2.0 * u), mask=at < count)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.graph = None

    def _layer(self, x):
        h = F.linear(x, self.linear.weight, self.linear.bias)
        y = torch.empty_like(h)
        gelu_kernel[(triton.cdiv(h.numel(), 1024),)](h, y, h.numel(), BLOCK=1024)
        return y

    def _capture(self, x):
        self.static_in = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._layer(self.static_in)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.static_out = self._layer(self.static_in)

    def forward(self, x):
        if self.graph is None or self.static_in.shape != x.shape:
            self._capture(x)
        self.static_in.copy_(x)
        self.graph.replay()
        return self.static_out.clone()
