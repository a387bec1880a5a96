"""Correct: the loss of one row per program; torch takes the mean of the rows."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_loss_kernel(logits_ptr, targets_ptr, loss_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    klass = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * classes + klass, mask=klass < classes, other=-float("inf"))
    largest = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - largest), axis=0)
    picked = tl.load(logits_ptr + row * classes + tl.load(targets_ptr + row))
    tl.store(loss_ptr + row, tl.log(total) + largest - picked)


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows, classes = logits.shape
        losses = torch.empty(rows, device=logits.device)
        block = triton.next_power_of_2(classes)
        row_loss_kernel[(rows,)](logits, targets, losses, classes, BLOCK=block, num_warps=8)
        return losses.mean()
