"""Causal attention whose mask lets one future key in.

It shows in every row but the last.

problem: attention_causal_ragged
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attend(q_ptr, k_ptr, v_ptr, out_ptr, length, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    base = tl.program_id(0) * length * WIDTH
    query = tl.program_id(1) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + base + query[:, None] * WIDTH + column[None, :], mask=(query < length)[:, None], other=0.0)
    largest = tl.full((TILE,), -1e30, tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    result = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, length, TILE):
        key = start + tl.arange(0, TILE)
        inside = (key < length)[:, None]
        k = tl.load(k_ptr + base + key[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)
        v = tl.load(v_ptr + base + key[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where((key[None, :] <= query[:, None] + 1) & (key < length)[None, :], scores, -1e30)
        grown = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - grown[:, None])
        shrink = tl.exp(largest - grown)
        total = total * shrink + tl.sum(weights, axis=1)
        result = result * shrink[:, None] + tl.dot(weights, v, input_precision="ieee")
        largest = grown
    out = result / total[:, None]
    tl.store(out_ptr + base + query[:, None] * WIDTH + column[None, :], out, mask=(query < length)[:, None])


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, width = q.shape
        out = torch.empty_like(q)
        grid = (batch * heads, triton.cdiv(length, 16))
        attend[grid](q, k, v, out, length, width**-0.5, WIDTH=width, TILE=16)
        return out


# Above is attention_sees_one_ahead. Variants, with what differs:
#
# attention_last_query_blind: Causal attention whose very last query does not see itself.
#   It shows in one row of each head.
#   -         scores = tl.where((key[None, :] <= query[:, None] + 1) & (key < length)[None, :], scores, -1e30)
#   +         scores = tl.where(
#   +             (key[None, :] <= tl.minimum(query, length - 2)[:, None]) & (key < length)[None, :], scores, -1e30
#   +         )
#
# attention_result_not_rescaled: Online attention that rescales its running sum but not its running result.
#   It shows wherever a later tile has a larger score.
#   -         scores = tl.where((key[None, :] <= query[:, None] + 1) & (key < length)[None, :], scores, -1e30)
#   +         scores = tl.where((key[None, :] <= query[:, None]) & (key < length)[None, :], scores, -1e30)
#   -         result = result * shrink[:, None] + tl.dot(weights, v, input_precision="ieee")
#   +         result = result + tl.dot(weights, v, input_precision="ieee")
#
# attention_scale_by_width: Attention scaled by 1/d instead of 1/sqrt(d).
#   It shows in every row but the first.
#   -         scores = tl.where((key[None, :] <= query[:, None] + 1) & (key < length)[None, :], scores, -1e30)
#   +         scores = tl.where((key[None, :] <= query[:, None]) & (key < length)[None, :], scores, -1e30)
#   -         attend[grid](q, k, v, out, length, width**-0.5, WIDTH=width, TILE=16)
#   +         attend[grid](q, k, v, out, length, 1.0 / width, WIDTH=width, TILE=16)
