"""Correct: one partial sum per program, added up by a second kernel."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def partial_kernel(a_ptr, b_ptr, partial_ptr, count, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    error = tl.load(a_ptr + offsets, mask=mask, other=0.0) - tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(partial_ptr + program, tl.sum(error * error, axis=0))


@triton.jit
def finish_kernel(partial_ptr, out_ptr, parts, count, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    sums = tl.load(partial_ptr + part, mask=part < parts, other=0.0)
    tl.store(out_ptr, tl.sum(sums, axis=0) / count)


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        predictions, targets = predictions.contiguous(), targets.contiguous()
        count = predictions.numel()
        parts = triton.cdiv(count, 16384)
        partial = torch.empty(parts, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        partial_kernel[(parts,)](predictions, targets, partial, count, BLOCK=16384, num_warps=8)
        finish_kernel[(1,)](partial, out, parts, count, PARTS=triton.next_power_of_2(parts))
        return out
