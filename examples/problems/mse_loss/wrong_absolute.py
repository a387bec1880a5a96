"""Wrong: averages absolute errors, not squared ones."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mae_kernel(a_ptr, b_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    error = tl.load(a_ptr + offsets, mask=mask, other=0.0) - tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(tl.abs(error), axis=0) / count)


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        count = predictions.numel()
        out = torch.zeros((), device=predictions.device)
        mae_kernel[(triton.cdiv(count, 8192),)](predictions, targets, out, count, BLOCK=8192, num_warps=8)
        return out
