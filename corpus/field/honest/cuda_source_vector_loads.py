"""GELU in CUDA C++ with loads and stores of four numbers, a tail for what is left, and a copy of unaligned inputs.

problem: normal_gelu
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

__device__ float gelu(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118654752f)); }

__global__ void gelu_fours(const float4* __restrict__ x, float4* __restrict__ y, long long fours) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < fours; i += step) {
        const float4 v = x[i];
        y[i] = make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
    }
}

__global__ void gelu_tail(const float* __restrict__ x, float* __restrict__ y, long long first, long long count) {
    const long long i = first + threadIdx.x;
    if (i < count) y[i] = gelu(x[i]);
}

torch::Tensor gelu_vectors(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "float32 on a GPU");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    if (reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 != 0) x = x.clone();
    auto y = torch::empty_like(x);
    const long long count = x.numel(), fours = count / 4;
    const auto stream = c10::cuda::getCurrentCUDAStream();
    if (fours > 0)
        gelu_fours<<<(unsigned)std::min<long long>((fours + 255) / 256, 4096), 256, 0, stream>>>(
            reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), fours);
    if (count % 4 != 0) gelu_tail<<<1, 32, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), fours * 4, count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="field_gelu_vectors",
    cpp_sources="torch::Tensor gelu_vectors(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["gelu_vectors"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu_vectors(x)
