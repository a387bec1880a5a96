"""Residual and RMS norm in CUDA C++: a block for each row, sums by shuffles within warps and shared memory between them.

problem: field_add_rms_norm
backend: cuda
outcome: CORRECT
devices: cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add_norm(const float* __restrict__ x, const float* __restrict__ residual, const float* __restrict__ weight,
                         float* __restrict__ normed, float* __restrict__ total, int columns) {
    const long long row = (long long)blockIdx.x * columns;
    __shared__ float parts[32];
    float sum = 0.f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        const float t = x[row + i] + residual[row + i];
        total[row + i] = t;
        sum += t * t;
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.f;
        for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
        if (threadIdx.x == 0) parts[0] = 1.f / sqrtf(sum / columns + 1e-6f);
    }
    __syncthreads();
    const float scale = parts[0];
    for (int i = threadIdx.x; i < columns; i += blockDim.x) normed[row + i] = total[row + i] * scale * weight[i];
}

std::vector<torch::Tensor> add_norm_rows(torch::Tensor x, torch::Tensor residual, torch::Tensor weight) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "float32 on a GPU");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    residual = residual.contiguous();
    weight = weight.contiguous();
    auto normed = torch::empty_like(x), total = torch::empty_like(x);
    const int columns = x.size(1);
    add_norm<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), residual.data_ptr<float>(), weight.data_ptr<float>(), normed.data_ptr<float>(),
        total.data_ptr<float>(), columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {normed, total};
}
"""

extension = load_inline(
    name="field_add_norm_rows",
    cpp_sources="std::vector<torch::Tensor> add_norm_rows(torch::Tensor x, torch::Tensor residual, torch::Tensor weight);",
    cuda_sources=CUDA,
    functions=["add_norm_rows"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, residual):
        normed, total = extension.add_norm_rows(x, residual, self.weight.detach())
        return normed, total
