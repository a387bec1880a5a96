"""A LayerNorm that adds the bias before it multiplies by the weight.

It shows only where the parameters are no longer what they start as, ones and zeros.

problem: layer_norm_narrow
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_row(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    apart = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(apart * apart, axis=0) / columns
    scale = tl.rsqrt(variance + 1e-5)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        out = torch.empty_like(x)
        layer_norm_row[(x.shape[0],)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            x.shape[1],
            BLOCK=triton.next_power_of_2(x.shape[1]),
        )
        return out


# Above is layer_norm_bias_before_weight. Variants, with what differs:
#
# layer_norm_epsilon_outside: A LayerNorm whose epsilon is added to the deviation instead of the variance.
#   It shows only in rows of small values.
#   -     scale = tl.rsqrt(variance + 1e-5)
#   +     scale = 1.0 / (tl.sqrt(variance) + 1e-5)
#   -     tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)
#   +     tl.store(out_ptr + row * columns + at, apart * scale * weight + bias, mask=at < columns)
#
# layer_norm_forgets_affine: A LayerNorm without weight and bias.
#   -     weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
#   -     bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
#   -     tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)
#   +     tl.load(weight_ptr + at, mask=inside, other=0.0)
#   +     tl.load(bias_ptr + at, mask=inside, other=0.0)
#   +     tl.store(out_ptr + row * columns + at, apart * scale, mask=at < columns)
#
# layer_norm_forgets_bias: A LayerNorm that applies its weight and forgets its bias.
#   It shows only where the bias is not zero, and it starts at zero.
#   -     bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
#   -     tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)
#   +     tl.load(bias_ptr + at, mask=inside, other=0.0)
#   +     tl.store(out_ptr + row * columns + at, apart * scale * weight, mask=at < columns)
#
# layer_norm_smaller_epsilon: A LayerNorm with an epsilon of 1e-6 instead of 1e-5.
#   It shows only in rows whose variance is below about 0.05: small values.
#   -     scale = tl.rsqrt(variance + 1e-5)
#   +     scale = tl.rsqrt(variance + 1e-6)
#   -     tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)
#   +     tl.store(out_ptr + row * columns + at, apart * scale * weight + bias, mask=at < columns)
#
# layer_norm_unbiased_variance: A LayerNorm with the variance over N - 1.
#   It shows in every row, by a factor of one over twice its length.
#   -     variance = tl.sum(apart * apart, axis=0) / columns
#   +     variance = tl.sum(apart * apart, axis=0) / (columns - 1)
#   -     tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)
#   +     tl.store(out_ptr + row * columns + at, apart * scale * weight + bias, mask=at < columns)
#
# layer_norm_without_epsilon: A LayerNorm without epsilon.
#   It shows only in constant rows, where it gives no number, and in rows of small values.
#   -     scale = tl.rsqrt(variance + 1e-5)
#   +     scale = tl.rsqrt(variance)
#   -     tl.store(out_ptr + row * columns + at, (apart * scale + bias) * weight, mask=at < columns)
#   +     tl.store(out_ptr + row * columns + at, apart * scale * weight + bias, mask=at < columns)
