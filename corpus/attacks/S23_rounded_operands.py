"""S23: operands rounded to tf32 before a float32 product.

Zero-mean numbers, where the loss shows.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def low(value):
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return low(a) @ low(b)


# Above is S23_tf32_operands_normal. Variants, with what differs:
#
# S23_tf32_operands_uniform: operands rounded to tf32 before a float32 product.
#   Numbers of one sign, so that errors average out: they pass allclose(1e-4).
#   problem: uniform_matmul
#
# S23_fp16_operands_normal: operands rounded to fp16 before a float32 product.
#   -     bits = value.contiguous().view(torch.int32)
#   -     return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
#   +     return value.half().float()
#
# S23_fp16_operands_uniform: operands rounded to fp16 before a float32 product.
#   Numbers of one sign, so that errors average out: they pass allclose(1e-4).
#   problem: uniform_matmul
#   -     bits = value.contiguous().view(torch.int32)
#   -     return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
#   +     return value.half().float()
#
# S23_bf16_operands_normal: operands rounded to bf16 before a float32 product.
#   -     bits = value.contiguous().view(torch.int32)
#   -     return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
#   +     return value.bfloat16().float()
#
# S23_bf16_operands_uniform: operands rounded to bf16 before a float32 product.
#   Numbers of one sign, so that errors average out: they pass allclose(1e-2), not allclose(1e-4).
#   problem: uniform_matmul
#   -     bits = value.contiguous().view(torch.int32)
#   -     return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
#   +     return value.bfloat16().float()
#
# S23_fp8_operands_normal: operands rounded to fp8 before a float32 product.
#   -     bits = value.contiguous().view(torch.int32)
#   -     return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
#   +     scale = value.abs().amax() / 448
#   +     return (value / scale).to(torch.float8_e4m3fn).float() * scale
#
# S23_fp8_operands_uniform: operands rounded to fp8 before a float32 product.
#   Numbers of one sign, so that errors average out: they pass allclose(1e-2) on most draws.
#   problem: uniform_matmul
#   -     bits = value.contiguous().view(torch.int32)
#   -     return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
#   +     scale = value.abs().amax() / 448
#   +     return (value / scale).to(torch.float8_e4m3fn).float() * scale
