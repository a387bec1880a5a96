"""Correct: a fixed number of programs make partial sums, a last one adds them up."""

import torch
import triton
import triton.language as tl
from torch import nn

PROGRAMS = 1024


@triton.jit
def partial_kernel(a_ptr, b_ptr, partial_ptr, count, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(program * BLOCK, count, STRIDE):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < count
        error = tl.load(a_ptr + offsets, mask=mask, other=0.0) - tl.load(b_ptr + offsets, mask=mask, other=0.0)
        size = tl.abs(error)
        total += tl.where(size < 1.0, 0.5 * error * error, size - 0.5)
    tl.store(partial_ptr + program, tl.sum(total, axis=0))


@triton.jit
def finish_kernel(partial_ptr, out_ptr, parts, count, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    tl.store(out_ptr, tl.sum(tl.load(partial_ptr + part, mask=part < parts, other=0.0), axis=0) / count)


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        count = predictions.numel()
        parts = min(PROGRAMS, triton.cdiv(count, 4096))
        partial = torch.empty(parts, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        partial_kernel[(parts,)](predictions, targets, partial, count, STRIDE=parts * 4096, BLOCK=4096, num_warps=8)
        finish_kernel[(1,)](partial, out, parts, count, PARTS=triton.next_power_of_2(parts))
        return out
