"""Correct: CUDA C++, four elements per thread, built when the candidate is imported."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, long count) {
    long first = (long(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first + 3 < count) {
        float4 v = *reinterpret_cast<const float4*>(x + first);
        v.x = fmaxf(v.x, 0.f);
        v.y = fmaxf(v.y, 0.f);
        v.z = fmaxf(v.z, 0.f);
        v.w = fmaxf(v.w, 0.f);
        *reinterpret_cast<float4*>(out + first) = v;
    } else {
        for (long i = first; i < count; ++i) out[i] = fmaxf(x[i], 0.f);
    }
}

torch::Tensor relu_forward(torch::Tensor x) {
    auto out = torch::empty_like(x);
    long count = x.numel();
    int threads = 256;
    long blocks = (count + threads * 4 - 1) / (threads * 4);
    relu_kernel<<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count);
    return out;
}
"""

extension = load_inline(
    name="relu_forward_extension",
    cpp_sources="torch::Tensor relu_forward(torch::Tensor x);",
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.relu_forward(x.contiguous())
