"""Product and online log-sum-exp in one kernel: the logits of a tile are never written.

problem: field_lm_head_loss
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def loss_kernel(
    h_ptr, w_ptr, t_ptr, y_ptr, tokens, vocabulary, WIDTH: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    target = tl.load(t_ptr + m, mask=m < tokens, other=0)
    tops = tl.full((BM,), -float("inf"), tl.float32)
    sums, wanted = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for first in range(0, vocabulary, BV):
        v = first + tl.arange(0, BV)
        logits = tl.zeros((BM, BV), tl.float32)
        for start in range(0, WIDTH, BK):
            k = start + tl.arange(0, BK)
            h = tl.load(h_ptr + m[:, None] * WIDTH + k[None, :], mask=(m < tokens)[:, None], other=0.0)
            w = tl.load(w_ptr + v[None, :] * WIDTH + k[:, None], mask=(v < vocabulary)[None, :], other=0.0)
            logits = tl.dot(h, w, logits, input_precision="ieee")
        wanted += tl.sum(tl.where(v[None, :] == target[:, None], logits, 0.0), axis=1)
        logits = tl.where((v < vocabulary)[None, :], logits, -float("inf"))
        bigger = tl.maximum(tops, tl.max(logits, axis=1))
        sums = sums * tl.exp(tops - bigger) + tl.sum(tl.exp(logits - bigger[:, None]), axis=1)
        tops = bigger
    loss = tops + tl.log(sums) - wanted
    tl.store(y_ptr + m, tl.where(target == 0, 0.0, loss), mask=m < tokens)


class ModelNew(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden, targets):
        hidden = hidden.contiguous()
        tokens, width = hidden.shape
        y = torch.empty(tokens, dtype=hidden.dtype, device=hidden.device)
        vocabulary = self.head.weight.shape[0]
        bm, bv = (16, 128) if hidden.is_cuda else (16, 64)
        loss_kernel[(triton.cdiv(tokens, bm),)](
            hidden, self.head.weight, targets, y, tokens, vocabulary, WIDTH=width, BM=bm, BV=bv, BK=32
        )
        return y
