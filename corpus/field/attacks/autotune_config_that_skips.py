"""T19: a tuner that may choose a configuration which leaves columns out, and finds that it is the quickest.

SHARE says which part of a row is summed; what is left out is guessed from what was seen.

problem: rows_softmax
backend: triton
outcome: INCORRECT, CORRECT
honest: persistent_softmax_rows
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [triton.Config({"BLOCK": 512, "SHARE": share}, num_warps=4) for share in (1, 2, 4)]


@triton.autotune(configs=CONFIGS, key=["columns"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr, SHARE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    lanes = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, columns // SHARE, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + row + at, mask=at < columns // SHARE, other=-float("inf"))
        bigger = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - bigger) + tl.sum(tl.exp(x - bigger), axis=0)
        top = bigger
    for start in range(0, columns, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + row + at, mask=at < columns, other=-float("inf"))
        tl.store(y_ptr + row + at, tl.exp(x - top) / (total * SHARE), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1])
        return y
