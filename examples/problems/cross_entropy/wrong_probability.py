"""Wrong: averages the probabilities of the targets and takes the logarithm last."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def picked_kernel(logits_ptr, targets_ptr, out_ptr, classes, ROWS: tl.constexpr, CLASSES: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    klass = tl.arange(0, CLASSES)
    inside = (klass < classes)[None, :]
    x = tl.load(logits_ptr + row[:, None] * classes + klass[None, :], mask=inside, other=-float("inf"))
    largest = tl.max(x, axis=1)
    total = tl.sum(tl.exp(x - largest[:, None]), axis=1)
    picked = tl.load(logits_ptr + row * classes + tl.load(targets_ptr + row))
    tl.store(out_ptr + row, tl.exp(picked - largest) / total)


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows, classes = logits.shape
        picked = torch.empty(rows, device=logits.device)
        picked_kernel[(rows // 16,)](logits, targets, picked, classes, ROWS=16, CLASSES=1024, num_warps=8)
        return -picked.mean().log()
