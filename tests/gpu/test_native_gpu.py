"""Candidates of several files in CUDA C++ on a GPU: raw CUDA without a header of PyTorch, and a torch binding."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.client import EvalRequest, LocalServices, read_candidate
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import (
    PROVENANCE_POLICY_REQUIRE_OWN_KERNELS,
    STAGE_BUILDING,
    STAGE_QUEUED,
    KernelUse,
    NativeBuild,
)
from tests.e2e.e2e_harness import PROBLEMS, outcome
from tests.gpu.test_gpu import judged

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

#: The file and the Python of a candidate with a binding; torch launches it on its current stream.
BINDING = """
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

__global__ void relu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.f ? x[i] : 0.f;
}

torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    relu_kernel<<<(x.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }
"""
BOUND = """
import native
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return native.relu(x)
"""


def softmax(*replaced: tuple[str, str]) -> EvalRequest:
    """Return a request with the example of several files, with changes in its softmax.cu."""
    asked: dict[str, Any] = read_candidate(PROBLEMS / "softmax" / "cuda_files")
    (written,) = [each for each in asked["kernel_files"] if each["path"] == "softmax.cu"]
    for old, new in replaced:
        assert old in written["content"]
        written["content"] = written["content"].replace(old, new)
    return request("softmax", **asked)


def request(problem: str, **asked: Any) -> EvalRequest:
    """Return a request for a problem of the examples."""
    reference = (PROBLEMS / problem / "reference.py").read_text()
    return request_from_json({"reference_code": reference, "backend": "cuda", "num_perf_trials": 20, **asked})


async def test_raw_cuda_is_correct_and_its_kernel_is_its_own(gpu_services: LocalServices) -> None:
    asked = softmax()
    asked.enable_profiling, asked.provenance_policy = True, PROVENANCE_POLICY_REQUIRE_OWN_KERNELS
    result = await judged(gpu_services, asked)
    assert outcome(result) == "CORRECT", result
    assert [(build.name, build.failed) for build in result.builds] == [("native", False)]
    own = [use.name for use in result.profile.kernels if use.owner == KernelUse.OWNER_CANDIDATE]
    assert [name.startswith("softmax_kernel") for name in own] == [True]
    again = await judged(gpu_services, softmax(("THREADS = 256", "THREADS = 256  /* the same work, another text */")))
    assert (outcome(again), again.builds[0].cached) == ("CORRECT", False)


async def test_raw_cuda_that_is_wrong_is_incorrect(gpu_services: LocalServices) -> None:
    result = await judged(
        gpu_services, softmax(("expf(row[i] - largest) / total", "expf(row[i] - largest) / (total + 1.f)"))
    )
    assert outcome(result) == "INCORRECT", result


async def test_raw_cuda_that_does_not_compile_never_gets_a_lane(gpu_services: LocalServices) -> None:
    result = await judged(gpu_services, softmax(("float total = 0.f;", "float total = nothing;")))
    assert outcome(result) == "COMPILE_ERROR", result
    assert {span.stage for span in result.stages} <= {STAGE_QUEUED, STAGE_BUILDING}, result
    assert "softmax.cu" in result.compile_error.message


async def test_raw_cuda_that_reads_where_it_may_not_is_a_runtime_error(gpu_services: LocalServices) -> None:
    result = await judged(
        gpu_services, softmax(("x + blockIdx.x * columns", "x + (blockIdx.x + (1ll << 40)) * columns"))
    )
    assert outcome(result) == "RUNTIME_ERROR", result


async def test_a_binding_in_a_file_is_correct_with_lean_headers(gpu_services: LocalServices) -> None:
    result = await judged(gpu_services, request("relu", kernel_code=BOUND, kernel_files={"relu.cu": BINDING}))
    assert outcome(result) == "CORRECT", result
    assert result.builds[0].headers == NativeBuild.HEADERS_LEAN
