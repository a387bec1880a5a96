"""CUDA, its compilers and its profiler work in the complete sandbox, which contains only the runner's own GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evaluator.judge_harness import Judge, candidate, limits, printed, request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
]

INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <torch/extension.h>
__global__ void relu_scale(const float* x, float* y, float scale, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) y[at] = fmaxf(x[at], 0.f) * scale;
}
torch::Tensor run(torch::Tensor x, double scale) {
  auto y = torch::empty_like(x);
  int count = x.numel();
  relu_scale<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), scale, count);
  return y;
}
"""
native = load_inline("native", cpp_sources="torch::Tensor run(torch::Tensor x, double scale);",
                     cuda_sources=SOURCE, functions=["run"])
class ModelNew(torch.nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.linear = torch.nn.Linear(features, features)
        self.scale = scale
    def forward(self, x):
        return native.run(self.linear(x), self.scale)
'''


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as running:
        assert running.ready["device"]["kind"] == "cuda"
        yield running


def test_cuda_works_inside_all_walls(judge: Judge) -> None:
    layers = {layer["name"]: layer for layer in judge.ready["sandbox_layers"]}
    inactive = {name: layer["detail"] for name, layer in layers.items() if not layer["active"]}
    assert inactive.keys() <= {"cgroup"}, inactive
    assert layers["device"]["active"]
    result = judge.evaluate(request(candidate(), run_performance=True))  # a Triton kernel, timed
    assert result["outcome"] == "CORRECT", result["message"]


def test_only_one_gpu_is_in_reach(judge: Judge) -> None:
    code = """
import os, re, torch
nodes = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia[0-9]+", name)]
print("nodes:", len(nodes), "devices:", torch.cuda.device_count())
"""
    assert "nodes: 1 devices: 1" in printed(judge, code)


def test_nvcc_builds(judge: Judge) -> None:
    result = judge.evaluate(request(INLINE, backend="cuda", **limits(load=400)))
    assert result["outcome"] == "CORRECT", (result["message"], result["logs"])


def test_the_profiler_sees_kernels(judge: Judge) -> None:
    code = """
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.rand(1024, 1024, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    (x @ x).relu_()
    torch.cuda.synchronize()
kernels = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
print("kernels:", len(kernels) >= 2, "timed:", all(event.time_range.elapsed_us() > 0 for event in kernels))
"""
    assert "kernels: True timed: True" in printed(judge, code)


def test_what_candidates_do_with_streams_graphs_and_pinned_memory_works(judge: Judge) -> None:
    code = """
import torch
pinned = torch.rand(1 << 20).pin_memory()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    y = pinned.to("cuda", non_blocking=True) * 2
stream.synchronize()
print("pinned:", torch.equal(y.cpu(), pinned * 2))
static = torch.ones(1024, device="cuda")
warm = static + 1
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = static * 3
graph.replay(); torch.cuda.synchronize()
print("graph:", out[0].item() == 3)
ones = torch.ones(1, 1, 64, 64, device="cuda")
print("blas:", (ones @ ones)[0, 0, 0, 0].item() == 64)
print("conv:", torch.nn.functional.conv2d(ones, ones[..., :3, :3])[0, 0, 0, 0].item() == 9)
"""
    logs = printed(judge, code)
    for name in ("pinned", "graph", "blas", "conv"):
        assert f"{name}: True" in logs, logs
