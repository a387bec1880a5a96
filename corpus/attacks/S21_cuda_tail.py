"""S21: an own CUDA kernel for the elementwise tail, the library for the product.

A label, not a failure.

problem: linear_relu_gemm
backend: cuda
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: S21
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void tail(float* x, long n) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (at < n) x[at] = x[at] > 0.0f ? x[at] * 0.5f : 0.0f;
}
torch::Tensor run(torch::Tensor x) {
    long n = x.numel();
    tail<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), n);
    return x;
}
"""

module = load_inline(
    name="s21_tail",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["run"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        features = arguments[0]
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return module.run(self.linear(x))
