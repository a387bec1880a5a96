"""GELU by a generic kernel over an operator's type, the form in which CUTLASS has its kernels.

What a profile shows is `void tiles::device_kernel<...>`; the work is in the operator.

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

namespace tiles {
template <class Operator>
__global__ void device_kernel(__grid_constant__ typename Operator::Params const params) {
    Operator()(params);
}

template <int Unroll>
struct Gelu {
    struct Params { const float* x; float* y; long long count; };
    __device__ void operator()(Params const& p) const {
        const long long step = (long long)gridDim.x * blockDim.x;
#pragma unroll Unroll
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += step)
            p.y[i] = 0.5f * p.x[i] * (1.f + erff(p.x[i] * 0.70710678118654752f));
    }
};
}  // namespace tiles

torch::Tensor gelu(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "float32 on a GPU");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const long long count = x.numel();
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const unsigned blocks = 2 * (unsigned)std::min<long long>((count + 511) / 512, 2048);
    tiles::device_kernel<tiles::Gelu<4>><<<blocks, 256, 0, stream>>>({x.data_ptr<float>(), y.data_ptr<float>(), count});
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="field_device_kernel",
    cpp_sources="torch::Tensor gelu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["gelu"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu(x)
