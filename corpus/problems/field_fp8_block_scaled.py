"""Eight-bit operands with a scale for each block: 1 x BLOCK of the left one, BLOCK x BLOCK of the right one."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS, INNER, BLOCK = (1024, 2048, 2048, 128) if BIG else (32, 64, 128, 32)


class Model(nn.Module):
    def forward(self, a, b, scale_a, scale_b):
        left = a.float() * scale_a.repeat_interleave(BLOCK, 1)
        right = b.float() * scale_b.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return (left @ right.t()).bfloat16()


def get_inputs():
    a, b = torch.randn(ROWS, INNER), torch.randn(COLUMNS, INNER)
    scale_a, scale_b = torch.rand(ROWS, INNER // BLOCK), torch.rand(COLUMNS // BLOCK, INNER // BLOCK)
    return [a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), scale_a + 0.1, scale_b + 0.1]


def get_init_inputs():
    return []
