"""A tuner of its own: three block sizes are timed in the first call of a shape, each of which does all of the work.

problem: field_add_rms_norm
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import time

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


def seconds(work, device):
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.best = {}

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        rows, columns = x.shape
        normed, total = torch.empty_like(x), torch.empty_like(x)
        block = triton.next_power_of_2(columns)

        def launch(warps):
            add_norm_kernel[(rows,)](x, residual, self.weight, normed, total, columns, BLOCK=block, num_warps=warps)

        key = (rows, columns, x.device)
        if key not in self.best:
            self.best[key] = min((4, 8, 16), key=lambda warps: seconds(lambda: launch(warps), x.device))
        launch(self.best[key])
        return normed, total
