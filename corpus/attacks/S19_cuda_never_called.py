"""S19: a CUDA kernel that is compiled and never called.

torch does the work.

problem: normal_gelu
backend: cuda
outcome: REJECTED
devices: cuda
request: {"enable_profiling": true}
finding: S19
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void gelu(const float* x, float* y, long n) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (at < n) y[at] = 0.5f * x[at] * (1.0f + erff(x[at] * 0.70710678f));
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    long n = x.numel();
    gelu<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""

module = load_inline(
    name="s19_gelu",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["run"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
