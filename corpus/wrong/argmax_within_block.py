"""An argmax in blocks that forgets where the block began.

It shows wherever the largest element is not in the first block.

problem: argmax_rows
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def place_of_largest(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((), float("-inf"), tl.float32)
    place = tl.zeros((), tl.int64)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        largest = tl.max(x, axis=0)
        first = tl.min(tl.where(x == largest, tl.arange(0, BLOCK), BLOCK), axis=0)
        place = tl.where(largest > best, first.to(tl.int64), place)
        best = tl.maximum(best, largest)
    tl.store(out_ptr + row, place)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        place_of_largest[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
