"""Cross entropy with a running maximum and sum; the mean over the rows that count is PyTorch's.

problem: cross_entropy_tokens
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def loss_kernel(logits_ptr, targets_ptr, losses_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    base = logits_ptr + row * classes
    top = -float("inf")
    total = 0.0
    for start in range(0, classes, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(base + at, mask=at < classes, other=-float("inf"))
        bigger = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - bigger) + tl.sum(tl.exp(x - bigger), axis=0)
        top = bigger
    loss = top - tl.load(base + target) + tl.log(total)
    tl.store(losses_ptr + row, tl.where(target == 0, 0.0, loss))


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        logits, targets = logits.contiguous(), targets.contiguous()
        rows, classes = logits.shape
        losses = torch.empty(rows, device=logits.device)
        block = min(4096, triton.next_power_of_2(classes))
        loss_kernel[(rows,)](logits, targets, losses, classes, BLOCK=block, num_warps=8)
        return losses.sum() / (targets != 0).sum()
