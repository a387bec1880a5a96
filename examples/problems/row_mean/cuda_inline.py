"""Correct: CUDA C++, one block per row, reduced by warp shuffles; built when the candidate is imported."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void mean_kernel(const float* __restrict__ x, float* __restrict__ out, int columns) {
    __shared__ float partial[32];
    const float* row = x + size_t(blockIdx.x) * columns;
    float total = 0.f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) total += row[i];
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_down_sync(0xffffffffu, total, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.f;
        for (int offset = 16; offset > 0; offset /= 2) total += __shfl_down_sync(0xffffffffu, total, offset);
        if (threadIdx.x == 0) out[blockIdx.x] = total / columns;
    }
}

torch::Tensor row_mean(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options());
    mean_kernel<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""

extension = load_inline(
    name="row_mean_extension",
    cpp_sources="torch::Tensor row_mean(torch::Tensor x);",
    cuda_sources=CUDA_SOURCE,
    functions=["row_mean"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.row_mean(x.contiguous())
