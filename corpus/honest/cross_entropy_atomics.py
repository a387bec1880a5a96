"""Cross entropy whose sum and count are kept by atomics, divided by a last kernel of one program.

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
def loss_kernel(logits_ptr, targets_ptr, sums_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    if target != 0:
        at = tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * classes + at, mask=at < classes, other=-float("inf"))
        top = tl.max(x, axis=0)
        normaliser = tl.log(tl.sum(tl.exp(x - top), axis=0))
        chosen = tl.load(logits_ptr + row * classes + target)
        tl.atomic_add(sums_ptr, top - chosen + normaliser)
        tl.atomic_add(sums_ptr + 1, 1.0)


@triton.jit
def divide_kernel(sums_ptr, mean_ptr):
    tl.store(mean_ptr, tl.load(sums_ptr) / tl.load(sums_ptr + 1))


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        logits, targets = logits.contiguous(), targets.contiguous()
        rows, classes = logits.shape
        sums = torch.zeros(2, device=logits.device)
        mean = torch.empty((), device=logits.device)
        block = triton.next_power_of_2(classes)
        loss_kernel[(rows,)](logits, targets, sums, classes, BLOCK=block, num_warps=8)
        divide_kernel[(1,)](sums, mean)
        return mean
