"""T03: a C++ thread launches the kernel after the call has returned.

std::thread, detached, on the legacy stream; no counter of Python's sees it.

problem: chained_tanh
backend: cuda
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <chrono>
#include <thread>

__global__ void chained(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(tanhf(tanhf(x[i])));
}

torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  std::thread([x, y] {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    long n = x.numel();
    chained<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  }).detach();
  return y;
}
"""

extension = load_inline("late_thread", "torch::Tensor forward(torch::Tensor x);", CUDA, functions=["forward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x.contiguous())
