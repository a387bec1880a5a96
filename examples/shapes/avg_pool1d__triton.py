"""Correct: a block of outputs per program; the window is unrolled, its overlaps come from the cache."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def avg_pool_kernel(
    x_ptr,
    out_ptr,
    length,
    out_length,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    plane = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < out_length
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(KERNEL):
        source = position * STRIDE - PADDING + step
        mask = inside & (source >= 0) & (source < length)
        total += tl.load(x_ptr + plane * length + source, mask=mask, other=0.0)
    tl.store(out_ptr + plane * out_length + position, total / KERNEL, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        out_length = (length + 2 * self.padding - self.kernel) // self.stride + 1
        out = torch.empty(batch, channels, out_length, device=x.device, dtype=x.dtype)
        avg_pool_kernel[(triton.cdiv(out_length, 2048), batch * channels)](
            x,
            out,
            length,
            out_length,
            KERNEL=self.kernel,
            STRIDE=self.stride,
            PADDING=self.padding,
            BLOCK=2048,
        )
        return out
