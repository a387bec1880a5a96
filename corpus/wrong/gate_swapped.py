"""A gate whose operands are swapped.

It shows wherever the two inputs differ.

problem: silu_gate
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x_ptr, gate_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    gate = tl.load(gate_ptr + at, mask=inside, other=0.0)
    y = gate * tl.sigmoid(gate) * x
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, gate):
        out = torch.empty_like(x)
        gated[(triton.cdiv(x.numel(), 1024),)](x, gate, out, x.numel(), BLOCK=1024)
        return out
