"""The k largest by taking the maximum k times; of equal ones the first.

problem: stable_top_k
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def top_k_kernel(x_ptr, values_ptr, indices_ptr, columns, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    for k in range(K):
        top = tl.max(x, axis=0)
        place = tl.min(tl.where(x == top, at, BLOCK), axis=0)
        tl.store(values_ptr + row * K + k, top)
        tl.store(indices_ptr + row * K + k, place.to(tl.int64))
        x = tl.where(at == place, -float("inf"), x)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        values = torch.empty(rows, self.k, device=x.device)
        indices = torch.empty(rows, self.k, dtype=torch.int64, device=x.device)
        block = triton.next_power_of_2(columns)
        top_k_kernel[(rows,)](x, values, indices, columns, K=self.k, BLOCK=block)
        return [values, indices]
