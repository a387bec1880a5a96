"""The weights are padded to whole tiles, transposed and kept, so that the kernel needs no mask on them.

problem: linear_gelu
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_gelu_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, PN, PK, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, PK, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(w_ptr + k[:, None] * PN + n[None, :])
        acc = tl.dot(x, w, acc, input_precision="ieee")
    h = acc + tl.load(b_ptr + n)[None, :]
    y = h * tl.sigmoid(1.5957691216057308 * (h + 0.044715 * h * h * h))
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    TILE = 32

    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.packed_for = None

    def _pack(self):
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        n, k = (triton.cdiv(size, self.TILE) * self.TILE for size in weight.shape)
        self.weight = weight.new_zeros(k, n)
        self.weight[: weight.shape[1], : weight.shape[0]] = weight.t()
        self.bias = bias.new_zeros(n)
        self.bias[: bias.shape[0]] = bias

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        state = (weight.data_ptr(), weight._version, bias.data_ptr(), bias._version)
        if state != self.packed_for:
            self._pack()
            self.packed_for = state
        x = x.contiguous()
        (m, k), n = x.shape, weight.shape[0]
        y = torch.empty(m, n, dtype=x.dtype, device=x.device)
        pk, pn = self.weight.shape
        grid = (triton.cdiv(m, self.TILE), pn // self.TILE)
        linear_gelu_kernel[grid](
            x, self.weight, self.bias, y, m, n, k, pn, pk, BM=self.TILE, BN=self.TILE, BK=self.TILE
        )
        return y
