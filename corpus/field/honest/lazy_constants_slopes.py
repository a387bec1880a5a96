"""Slopes in a dict by number of heads; the kernel makes bias and mask from them, and skips what the mask hides.

problem: field_alibi_softmax
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def alibi_kernel(s_ptr, slope_ptr, y_ptr, HEADS, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    query = row % length
    slope = tl.load(slope_ptr + (row // length) % HEADS)
    at = tl.arange(0, BLOCK)
    seen = at <= query
    s = tl.load(s_ptr + row * length + at, mask=seen, other=-float("inf"))
    s = s + slope * (at - query).to(tl.float32)
    e = tl.where(seen, tl.exp(s - tl.max(s, axis=0)), 0.0)
    tl.store(y_ptr + row * length + at, e / tl.sum(e, axis=0), mask=at < length)


_SLOPES = {}


def slopes_for(heads, device):
    if (heads, device) not in _SLOPES:
        _SLOPES[heads, device] = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, device=device))
    return _SLOPES[heads, device]


class ModelNew(nn.Module):
    def forward(self, scores):
        scores = scores.contiguous()
        batch, heads, length, _ = scores.shape
        y = torch.empty_like(scores)
        block = triton.next_power_of_2(length)
        alibi_kernel[(batch * heads * length,)](scores, slopes_for(heads, scores.device), y, heads, length, BLOCK=block)
        return y
