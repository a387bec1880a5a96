"""S22: at::matmul within an extension of one's own.

Not a kernel of its own anywhere: with profiling the library's share shows.

problem: normal_matmul
backend: cuda
outcome: REJECTED, CORRECT
devices: cuda
request: {"enable_profiling": true}
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) { return at::matmul(a, b); }
"""

module = load_inline(
    name="s22_matmul",
    cpp_sources="torch::Tensor product(torch::Tensor a, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["product"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return module.product(a, b)
