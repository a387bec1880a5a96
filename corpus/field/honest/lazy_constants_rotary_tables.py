"""Tables of cosines and sines, built at the first call of each width and device, long enough for all positions seen.

Only positions and frequencies are in them: nothing of x.

problem: field_rotary_positions
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rotary_kernel(x_ptr, p_ptr, cos_ptr, sin_ptr, y_ptr, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(p_ptr + token)
    half = tl.arange(0, HALF)
    heads = tl.arange(0, HEADS)
    cos = tl.load(cos_ptr + position * HALF + half)[None, :]
    sin = tl.load(sin_ptr + position * HALF + half)[None, :]
    at = token * HEADS * HALF * 2 + heads[:, None] * HALF * 2 + 2 * half[None, :]
    even, odd = tl.load(x_ptr + at), tl.load(x_ptr + at + 1)
    tl.store(y_ptr + at, even * cos - odd * sin)
    tl.store(y_ptr + at + 1, odd * cos + even * sin)


class ModelNew(nn.Module):
    LONGEST = 8192

    def __init__(self):
        super().__init__()
        self.tables = {}

    def _tables(self, width, device):
        key = (width, device)
        if key not in self.tables:
            frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
            angles = torch.arange(self.LONGEST, dtype=torch.float64, device=device)[:, None] * frequencies
            self.tables[key] = angles.cos().float(), angles.sin().float()
        return self.tables[key]

    def forward(self, x, positions):
        x = x.contiguous()
        tokens, heads, width = x.shape
        cos, sin = self._tables(width, x.device)
        y = torch.empty_like(x)
        rotary_kernel[(tokens,)](x, positions, cos, sin, y, HEADS=heads, HALF=width // 2)
        return y
