"""S22: cuBLAS within an extension, and a kernel of its own that copies the result.

Without the copy the answer is gone, so it is no decoy; the product is the library's. A label.

problem: normal_matmul
backend: cuda
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: B01
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void custom_matmul_kernel(const float* x, float* y, long n) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (at < n) y[at] = x[at];
}
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    auto c = at::mm(a, b);
    auto y = torch::empty_like(c);
    long n = c.numel();
    custom_matmul_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        c.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""

module = load_inline(
    name="s22_copy",
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
