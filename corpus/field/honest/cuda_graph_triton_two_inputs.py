"""A CUDA graph of a Triton kernel with two inputs and two outputs, the outputs in buffers that every replay rewrites.

problem: field_add_rms_norm
backend: triton
outcome: CORRECT
devices: cuda
finding: S30
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, t_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    total = tl.load(x_ptr + row + at, mask=inside, other=0.0) + tl.load(r_ptr + row + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / columns + 1e-6)
    weight = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(t_ptr + row + at, total, mask=inside)
    tl.store(y_ptr + row + at, total * scale * weight, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.captured = None

    def _run(self, x, residual, normed, total):
        columns = x.shape[1]
        block = triton.next_power_of_2(columns)
        add_norm_kernel[(x.shape[0],)](x, residual, self.weight, normed, total, columns, BLOCK=block, num_warps=8)

    def _capture(self, x, residual):
        buffers = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(4)]
        buffers[0].copy_(x)
        buffers[1].copy_(residual)
        self._run(*buffers)  # compiled before the capture
        torch.cuda.synchronize(x.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run(*buffers)
        return graph, buffers

    def forward(self, x, residual):
        if self.captured is None or self.captured[1][0].shape != x.shape:
            self.captured = self._capture(x, residual)
        graph, (given_x, given_residual, normed, total) = self.captured
        given_x.copy_(x)
        given_residual.copy_(residual)
        graph.replay()
        return normed, total
