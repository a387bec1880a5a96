"""T01: a CUDA kernel launched on a stream of its own.

The word for it is pasted together by the preprocessor, as a filter on the source would otherwise find it.

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
#define GLUE2(a, b) a##b
#define GLUE(a, b) GLUE2(a, b)
using Lane = GLUE(cuda, Stream_t);

__global__ void chained(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(tanhf(tanhf(x[i])));
}

torch::Tensor forward(torch::Tensor x, int64_t caller) {
  static Lane lane = [] {
    Lane made;
    GLUE(GLUE(cuda, Stream), CreateWithFlags)(&made, 1);
    return made;
  }();
  static cudaEvent_t ready = [] {
    cudaEvent_t made;
    cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    return made;
  }();
  cudaEventRecord(ready, (Lane)caller);  // the inputs must be there
  GLUE(GLUE(cuda, Stream), WaitEvent)(lane, ready, 0);
  auto y = torch::empty_like(x);
  long n = x.numel();
  chained<<<(n + 255) / 256, 256, 0, lane>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""

extension = load_inline(
    "side_lane", "torch::Tensor forward(torch::Tensor x, int64_t caller);", CUDA, functions=["forward"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x.contiguous(), torch.cuda.current_stream().cuda_stream)
