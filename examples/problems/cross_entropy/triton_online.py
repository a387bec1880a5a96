"""Correct: a running maximum and sum over blocks of classes; torch takes the mean."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_loss_kernel(logits_ptr, targets_ptr, loss_ptr, classes, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    target = tl.load(targets_ptr + row)
    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    picked = tl.zeros((ROWS,), tl.float32)
    for start in range(0, classes, BLOCK):
        klass = start + tl.arange(0, BLOCK)
        inside = (klass < classes)[None, :]
        x = tl.load(logits_ptr + row[:, None] * classes + klass[None, :], mask=inside, other=-float("inf"))
        picked += tl.sum(tl.where(klass[None, :] == target[:, None], x, 0.0), axis=1)
        new_largest = tl.maximum(largest, tl.max(x, axis=1))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest[:, None]), axis=1)
        largest = new_largest
    tl.store(loss_ptr + row, tl.log(total) + largest - picked)


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = logits.contiguous()
        rows, classes = logits.shape
        assert rows % 32 == 0
        losses = torch.empty(rows, device=logits.device)
        row_loss_kernel[(rows // 32,)](logits, targets, losses, classes, ROWS=32, BLOCK=256, num_warps=8)
        return losses.mean()
