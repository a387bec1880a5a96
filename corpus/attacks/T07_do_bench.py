"""T07: Triton's own benchmark always answers ten microseconds.

triton.testing.do_bench and the benchmark module of torch are replaced; an evaluator that calls them in this process believes it.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.utils.benchmark
import triton.testing

triton.testing.do_bench = lambda function, *args, **kwargs: (function(), 0.01)[1]
triton.testing.do_bench_cudagraph = triton.testing.do_bench
torch.utils.benchmark.Timer.timeit = lambda self, number=1: torch.utils.benchmark.Measurement(
    1, [1e-5], self._task_spec
)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        return work(x)
