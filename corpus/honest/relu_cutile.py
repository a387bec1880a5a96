"""ReLU in cuTile: one tile per block.

The length is odd. All the time must be seen to be in its own kernel.

problem: relu_randn
backend: cutile
devices: cuda
request: {"enable_profiling": true, "provenance_policy": "require_own_kernels"}
"""

import cuda.tile as ct
import torch
import torch.nn as nn

TILE = 2048


@ct.kernel
def relu_kernel(x, y, tile: ct.Constant[int]):
    value = ct.load(x, index=(ct.bid(0),), shape=(tile,))
    ct.store(y, index=(ct.bid(0),), tile=ct.maximum(value, 0.0))


def run(x, y):
    blocks = ct.cdiv(x.numel(), TILE)
    ct.launch(torch.cuda.current_stream(), (blocks,), relu_kernel, (x.view(-1), y.view(-1), TILE))


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        run(x, y)
        return y
