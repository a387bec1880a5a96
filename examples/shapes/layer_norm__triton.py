"""Correct: statistics of chunks, combined per item, then one pass that normalises."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def chunk_kernel(x_ptr, mean_ptr, squares_ptr, size, chunks, BLOCK: tl.constexpr):
    chunk = tl.program_id(0)
    item = tl.program_id(1)
    offsets = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + item * size + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / tl.minimum(size - chunk * BLOCK, BLOCK)
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + item * chunks + chunk, mean)
    tl.store(squares_ptr + item * chunks + chunk, tl.sum(centred * centred, axis=0))


@triton.jit
def item_kernel(
    mean_ptr, squares_ptr, item_mean_ptr, item_rstd_ptr, size, chunks, eps, BLOCK: tl.constexpr, CHUNKS: tl.constexpr
):
    item = tl.program_id(0)
    chunk = tl.arange(0, CHUNKS)
    mask = chunk < chunks
    count = tl.where(mask, tl.minimum(size - chunk * BLOCK, BLOCK), 0).to(tl.float32)
    means = tl.load(mean_ptr + item * chunks + chunk, mask=mask, other=0.0)
    squares = tl.load(squares_ptr + item * chunks + chunk, mask=mask, other=0.0)
    mean = tl.sum(means * count, axis=0) / size
    between = means - mean
    total = tl.sum(squares, axis=0) + tl.sum(between * between * count, axis=0)
    tl.store(item_mean_ptr + item, mean)
    tl.store(item_rstd_ptr + item, 1.0 / tl.sqrt(total / size + eps))


@triton.jit
def normalise_kernel(x_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, out_ptr, size, BLOCK: tl.constexpr):
    item = tl.program_id(1)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + item * size + offsets, mask=mask)
    weight = tl.load(weight_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    normal = (x - tl.load(mean_ptr + item)) * tl.load(rstd_ptr + item)
    tl.store(out_ptr + item * size + offsets, normal * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, size = x.shape[0], x[0].numel()
        chunks = triton.cdiv(size, 8192)
        chunk_mean, chunk_squares = torch.empty(2, batch, chunks, device=x.device).unbind()
        mean, rstd = torch.empty(2, batch, device=x.device).unbind()
        out = torch.empty_like(x)
        chunk_kernel[(chunks, batch)](x, chunk_mean, chunk_squares, size, chunks, BLOCK=8192, num_warps=8)
        block = triton.next_power_of_2(chunks)
        item_kernel[(batch,)](
            chunk_mean, chunk_squares, mean, rstd, size, chunks, self.norm.eps, BLOCK=8192, CHUNKS=block
        )
        normalise_kernel[(triton.cdiv(size, 2048), batch)](
            x, mean, rstd, self.norm.weight, self.norm.bias, out, size, BLOCK=2048
        )
        return out
