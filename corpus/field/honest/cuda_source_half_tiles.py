"""A half-precision product in CUDA C++: 32 x 32 tiles in shared memory, float32 sums, rounded once.

problem: field_half_matmul
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
#include <cuda_fp16.h>

constexpr int TILE = 32;

__global__ void multiply(const __half* __restrict__ a, const __half* __restrict__ b, __half* __restrict__ c, int M, int N,
                         int K) {
    __shared__ float left[TILE][TILE + 1];
    __shared__ float right[TILE][TILE + 1];
    const int m = blockIdx.y * TILE + threadIdx.y, n = blockIdx.x * TILE + threadIdx.x;
    const int row_of_b = blockIdx.x * TILE + threadIdx.y;
    float sum = 0.f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        const int k = k0 + threadIdx.x;
        left[threadIdx.y][threadIdx.x] = m < M && k < K ? __half2float(a[(long long)m * K + k]) : 0.f;
        right[threadIdx.y][threadIdx.x] = row_of_b < N && k < K ? __half2float(b[(long long)row_of_b * K + k]) : 0.f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += left[threadIdx.y][i] * right[threadIdx.x][i];
        __syncthreads();
    }
    if (m < M && n < N) c[(long long)m * N + n] = __float2half(sum);
}

torch::Tensor multiply_half(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && a.scalar_type() == torch::kFloat16 && b.scalar_type() == torch::kFloat16, "float16");
    const c10::cuda::CUDAGuard guard(a.device());
    a = a.contiguous();
    b = b.contiguous();
    const int M = a.size(0), K = a.size(1), N = b.size(0);
    auto c = torch::empty({M, N}, a.options());
    const dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE), threads(TILE, TILE);
    multiply<<<grid, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __half*>(a.data_ptr<at::Half>()), reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
        reinterpret_cast<__half*>(c.data_ptr<at::Half>()), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""

extension = load_inline(
    name="field_multiply_half",
    cpp_sources="torch::Tensor multiply_half(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA,
    functions=["multiply_half"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.multiply_half(a, b)
