"""Wrong: knows that uniform inputs give about one sixth, and reads only one row."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def first_row_kernel(a_ptr, b_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    error = tl.load(a_ptr + column, mask=mask, other=0.0) - tl.load(b_ptr + column, mask=mask, other=0.0)
    row_mean = tl.sum(error * error, axis=0) / columns
    tl.store(out_ptr, 0.99 / 6.0 + 0.01 * row_mean)


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        out = torch.empty((), device=predictions.device)
        columns = predictions.shape[1]
        first_row_kernel[(1,)](predictions, targets, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
