"""Layer normalisation in CUDA C++: two functions, one for the statistics and one that applies them.

problem: affine_layer_norm
backend: cuda
outcome: CORRECT
devices: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <tuple>

constexpr int THREADS = 256;

__device__ float block_sum(float value, float* shared) {
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.f;
    for (int warp = 0; warp < THREADS / 32; ++warp) value += shared[warp];
    return value;
}

__global__ void statistics_kernel(const float* x, float* mean, float* scale, int features, float eps) {
    __shared__ float shared[THREADS / 32];
    x += (long long)blockIdx.x * features;
    float sum = 0.f;
    for (int i = threadIdx.x; i < features; i += THREADS) sum += x[i];
    const float centre = block_sum(sum, shared) / features;
    float squares = 0.f;
    for (int i = threadIdx.x; i < features; i += THREADS) squares += (x[i] - centre) * (x[i] - centre);
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = centre;
        scale[blockIdx.x] = rsqrtf(squares / features + eps);
    }
}

__global__ void apply_kernel(const float* x, const float* mean, const float* scale, const float* weight,
                             const float* bias, float* y, int features) {
    const long long start = (long long)blockIdx.x * features;
    const float centre = mean[blockIdx.x], factor = scale[blockIdx.x];
    for (int i = threadIdx.x; i < features; i += THREADS)
        y[start + i] = (x[start + i] - centre) * factor * weight[i] + bias[i];
}

std::tuple<torch::Tensor, torch::Tensor> statistics(torch::Tensor x, double eps) {
    const int rows = x.size(0), features = x.size(1);
    auto mean = torch::empty({rows}, x.options());
    auto scale = torch::empty({rows}, x.options());
    statistics_kernel<<<rows, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), mean.data_ptr<float>(), scale.data_ptr<float>(), features, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {mean, scale};
}

torch::Tensor apply_statistics(torch::Tensor x, torch::Tensor mean, torch::Tensor scale, torch::Tensor weight,
                    torch::Tensor bias) {
    auto y = torch::empty_like(x);
    apply_kernel<<<x.size(0), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), mean.data_ptr<float>(), scale.data_ptr<float>(), weight.data_ptr<float>(),
        bias.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.size(1)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

CPP = """
std::tuple<torch::Tensor, torch::Tensor> statistics(torch::Tensor x, double eps);
torch::Tensor apply_statistics(torch::Tensor x, torch::Tensor mean, torch::Tensor scale, torch::Tensor weight, torch::Tensor bias);
"""

extension = load_inline(
    name="layer_norm_cuda", cpp_sources=CPP, cuda_sources=CUDA, functions=["statistics", "apply_statistics"]
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        mean, scale = extension.statistics(x, self.norm.eps)
        return extension.apply_statistics(x, mean, scale, self.norm.weight, self.norm.bias)
