"""A BatchNorm for inference that takes its running statistics for 0 and 1.

It shows only where the running statistics are no longer what they start as.

problem: batch_norm_inference
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def batch_norm_channel(
    x_ptr, weight_ptr, bias_ptr, mean_ptr, variance_ptr, out_ptr, rows, channels, BLOCK: tl.constexpr
):
    channel = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < rows
    x = tl.load(x_ptr + at * channels + channel, mask=inside, other=0.0)
    mean = tl.full((), 0.0, tl.float32)
    variance = tl.full((), 1.0, tl.float32)
    scale = tl.rsqrt(variance + 1e-5) * tl.load(weight_ptr + channel)
    tl.store(out_ptr + at * channels + channel, (x - mean) * scale + tl.load(bias_ptr + channel), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels).eval()

    def forward(self, x):
        out = torch.empty_like(x)
        norm = self.norm
        batch_norm_channel[(x.shape[1],)](
            x,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            out,
            x.shape[0],
            x.shape[1],
            BLOCK=triton.next_power_of_2(x.shape[0]),
        )
        return out


# Above is batch_norm_assumes_fresh. Variants, with what differs:
#
# batch_norm_batch_statistics: A BatchNorm for inference that uses the statistics of the batch.
#   It shows wherever the batch has other statistics than the running ones.
#   -     mean = tl.full((), 0.0, tl.float32)
#   -     variance = tl.full((), 1.0, tl.float32)
#   +     mean = tl.sum(x, axis=0) / rows
#   +     apart = tl.where(inside, x - mean, 0.0)
#   +     variance = tl.sum(apart * apart, axis=0) / rows
#
# batch_norm_running_statistics: A BatchNorm in training that uses the running statistics.
#   It shows wherever the batch is not exactly of mean 0 and variance 1.
#   problem: batch_norm_of_batch
#   -     mean = tl.full((), 0.0, tl.float32)
#   -     variance = tl.full((), 1.0, tl.float32)
#   +     mean = tl.load(mean_ptr + channel)
#   +     variance = tl.load(variance_ptr + channel)
#   -         self.norm = nn.BatchNorm1d(channels).eval()
#   +         self.norm = nn.BatchNorm1d(channels)
