"""An int8 weight with one scale a row, multiplied with int32 sums and float32 scales: what a quantized layer does."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES, HIDDEN = (1024, 1024, 1024) if BIG else (32, 64, 32)


class Model(nn.Module):
    def forward(self, x, weight, scale):
        # Sums of at most 1024 products of 7-bit numbers are exact in float64.
        total = (x.double() @ weight.double().T).to(torch.int32)
        return total, total.to(scale.dtype) * scale


def get_inputs():
    x = torch.randint(-127, 128, (ROWS, FEATURES), dtype=torch.int8)
    weight = torch.randint(-127, 128, (HIDDEN, FEATURES), dtype=torch.int8)
    return [x, weight, torch.rand(HIDDEN)]


def get_init_inputs():
    return []
