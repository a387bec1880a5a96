"""S20: a cuTile kernel that is launched; torch gives the answer.

The kernel computes the answer as well, and it is thrown away.

problem: normal_gelu
backend: cutile
outcome: REJECTED
devices: cuda
request: {"enable_profiling": true}
finding: S20
"""

import cuda.tile as ct
import torch
import torch.nn as nn
import torch.nn.functional as F

TILE = 2048


@ct.kernel
def gelu_kernel(x, y, tile: ct.Constant[int]):
    value = ct.load(x, index=(ct.bid(0),), shape=(tile,))
    ct.store(
        y,
        index=(ct.bid(0),),
        tile=0.5 * value * (1.0 + ct.tanh(0.7978845608 * (value + 0.044715 * value * value * value))),
    )


def run(x, y):
    blocks = ct.cdiv(x.numel(), TILE)
    ct.launch(torch.cuda.current_stream(), (blocks,), gelu_kernel, (x.view(-1), y.view(-1), TILE))


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        run(x, y)
        return F.gelu(x)
