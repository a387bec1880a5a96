"""GELU by a kernel that a macro names, as libraries define one for each operator.

The kernel's name is nowhere in the source.

problem: normal_gelu
backend: cuda
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true, "provenance_policy": "require_own_kernels"}
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

__device__ __forceinline__ float value(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118654752f)); }

#define ELEMENTWISE(operation) \
    extern "C" __global__ void operation##_over_all(const float* x, float* y, long long count)
#define LAUNCH(operation) operation##_over_all<<<blocks, 256, 0, stream>>>

ELEMENTWISE(gelu) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) y[i] = value(x[i]);
}

torch::Tensor gelu(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "float32 on a GPU");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const long long count = x.numel();
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const unsigned blocks = 2 * (unsigned)std::min<long long>((count + 511) / 512, 2048);
    LAUNCH(gelu)(x.data_ptr<float>(), y.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="field_macro_named",
    cpp_sources="torch::Tensor gelu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["gelu"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu(x)
