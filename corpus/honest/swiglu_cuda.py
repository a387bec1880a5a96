"""SwiGLU gate in CUDA C++, element by element, two at a time.

problem: swiglu_gate
backend: cuda
outcome: CORRECT
devices: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <algorithm>

__device__ float gated(float gate, float value) { return gate / (1.f + expf(-gate)) * value; }

__global__ void swiglu_kernel(const __nv_bfloat162* __restrict__ x, __nv_bfloat162* __restrict__ y, long long count,
                              int pairs) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += step) {
        const long long row = i / pairs, at = row * 2 * pairs + i % pairs;
        const float2 gate = __bfloat1622float2(x[at]), value = __bfloat1622float2(x[at + pairs]);
        y[i] = __floats2bfloat162_rn(gated(gate.x, value.x), gated(gate.y, value.y));
    }
}

torch::Tensor swiglu(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kBFloat16 && x.size(1) % 4 == 0, "an even bfloat16 matrix");
    x = x.contiguous();
    auto y = torch::empty({x.size(0), x.size(1) / 2}, x.options());
    const long long count = y.numel() / 2;
    const int blocks = static_cast<int>(std::min<long long>((count + 255) / 256, 132 * 16));
    swiglu_kernel<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __nv_bfloat162*>(x.data_ptr()), reinterpret_cast<__nv_bfloat162*>(y.data_ptr()),
        count, static_cast<int>(x.size(1) / 4));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="swiglu_cuda",
    cpp_sources="torch::Tensor swiglu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["swiglu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.swiglu(x)
