"""A ReLU that also writes its result over its input.

The output is right; the input is changed.

problem: relu_randn
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.maximum(x, 0.0)
    tl.store(x_ptr + at, y, mask=inside)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out


# Above is relu_in_place. Variants, with what differs:
#
# relu_double_output: A ReLU that returns float64 for float32.
#   The values are right; the type is not.
#   -         out = torch.empty_like(x)
#   +         out = torch.empty_like(x, dtype=torch.float64)
#   -     tl.store(x_ptr + at, y, mask=inside)
#
# relu_flattened: A ReLU with a dimension too many: (1, N) instead of (N,).
#   The values are right; the shape is not.
#   -         out = torch.empty_like(x)
#   +         out = torch.empty(1, x.numel(), device=x.device)
#   -     tl.store(x_ptr + at, y, mask=inside)
#
# relu_last_element_skipped: A ReLU whose mask is one short: the last element stays as it was allocated.
#   It shows in one element.
#   -     inside = at < count
#   +     inside = at < count - 1
#   -         out = torch.empty_like(x)
#   +         out = torch.zeros_like(x) - 1.0
#   -     tl.store(x_ptr + at, y, mask=inside)
#
# relu_last_tile_skipped: A ReLU whose grid is rounded down: the last, partial tile is never written.
#   It shows in the last tile only.
#   -         relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
#   +         relu[(x.numel() // 1024,)](x, out, x.numel(), BLOCK=1024)
#   -     tl.store(x_ptr + at, y, mask=inside)
#
# relu_one_element_wrong: A ReLU that is wrong at flat index 12345 only.
#   It shows in one element of all.
#   -     tl.store(x_ptr + at, y, mask=inside)
#   +     y = tl.where(at == 12345, tl.abs(x) + 1.0, y)
#
# relu_through_bfloat16: A ReLU whose values pass through bfloat16.
#   It shows by about one part in 500 in half of the elements.
#   -     y = tl.maximum(x, 0.0)
#   -     tl.store(x_ptr + at, y, mask=inside)
#   +     y = tl.maximum(x.to(tl.bfloat16).to(tl.float32), 0.0)
