"""T29: the current stream is changed, and a kernel goes to the legacy stream.

A launch without a stream, from C++, is on the legacy stream; streams of torch's pool do not wait for it.

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
__global__ void chained(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(tanhf(tanhf(x[i])));
}

torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  long n = x.numel();
  chained<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""

extension = load_inline("legacy", "torch::Tensor forward(torch::Tensor x);", CUDA, functions=["forward"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.moved = False

    def forward(self, x):
        if not self.moved:
            self.moved = True
            torch.cuda.set_stream(torch.cuda.Stream())
            torch.cuda.synchronize()
        return extension.forward(x.contiguous())
