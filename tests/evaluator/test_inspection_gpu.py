"""The real tools on a GPU: planted errors are found at their lines, counters agree with what a kernel does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from kerneldyno.v1 import evaluation_pb2 as pb
from tests.corpus.judge_with_builder import JudgeWithBuilder
from tests.evaluator.judge_harness import request
from tests.evaluator.test_judge_outcomes import parse

pytestmark = pytest.mark.gpu

DOUBLE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.randn(1 << 16)]
"""

#: Each kernel is right, and breaks one rule. Lines that a report may name end with "// here".
PLANTED = {
    "out of bounds": """
__global__ void work(const float* x, float* y, const int* scratch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2 * x[i];
    if (i >= n - 32) y[i + 512] = 1.0f;  // here
}
""",
    "race": """
__global__ void work(const float* x, float* y, const int* scratch, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    __syncthreads();
    float other = s[255 - threadIdx.x];  // here
    s[threadIdx.x] = other * 0 + x[i];  // here
    y[i] = 2 * x[i] + 0 * other;
}
""",
    "uninitialised": """
__global__ void work(const float* x, float* y, const int* scratch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = scratch[i] == 0x12345 ? 3 * x[i] : 2 * x[i];  // here
}
""",
    "barrier": """
__global__ void work(const float* x, float* y, const int* scratch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 32 < 16) __syncthreads();  // here
    y[i] = 2 * x[i];
}
""",
    "nothing": """
__global__ void work(const float* x, float* y, const int* scratch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2 * x[i];
}
""",
}
LAUNCH = """
extern "C" void run(const float* x, float* y, const int* scratch, int n) {
    work<<<n / 256, 256>>>(x, y, scratch, n);
}
"""
CANDIDATE = """
import native
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        native.run(x, y, torch.empty(x.numel(), dtype=torch.int32, device=x.device), x.numel())
        return y
"""
FOUND_BY = {"out of bounds": "memcheck", "race": "racecheck", "uninitialised": "initcheck", "barrier": "synccheck"}
FINDING = {"out of bounds": "M01", "race": "M03", "uninitialised": "M04", "barrier": "M05"}

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))
    {more}

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(x.numel() // 1024,)](x, y, BLOCK=1024)
        return y
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeWithBuilder]:
    if shutil.which("compute-sanitizer", path="/usr/local/cuda/bin") is None:
        pytest.skip("this machine has no compute-sanitizer")
    with JudgeWithBuilder("--lanes", "4", "--spares", "4") as running:
        yield running


def asked(kind: str, **changes: Any) -> dict[str, Any]:
    """Return the request of a planted candidate."""
    fields = {
        "backend": "cuda",
        "reference_code": DOUBLE,
        "kernel_files": [{"path": "work.cu", "content": PLANTED[kind] + LAUNCH}],
        "sanitize": "SANITIZE_ALL",
        "memory_errors": "MEMORY_ERRORS_LABEL",
        **changes,
    }
    result: dict[str, Any] = request(CANDIDATE, **fields)
    result["timeouts"] = {f"{stage}_timeout": "120s" for stage in ("load", "compile", "correctness", "timing")}
    return result


def test_planted_errors_are_found_at_their_lines(judge: JudgeWithBuilder) -> None:
    results = judge.evaluate_together(*(asked(kind) for kind in PLANTED))
    for kind, said in zip(PLANTED, results, strict=True):
        result = parse(said)
        print(kind, result.outcome, result.message, [(found.id, found.evidence) for found in result.findings])
        print([(run.tool, run.finished, run.detail, round(run.seconds, 1)) for run in result.sanitizer.runs])
        print([error for run in result.sanitizer.runs for error in run.reports])
    for kind, said in zip(PLANTED, results, strict=True):
        result = parse(said)
        assert result.outcome == result.CORRECT, (kind, result.message)
        assert len(result.sanitizer.runs) == 4
        found = {run.tool: run for run in result.sanitizer.runs if run.errors}
        if kind == "nothing":
            assert not found, found
            assert all(run.finished for run in result.sanitizer.runs), result.sanitizer
            continue
        error = found[FOUND_BY[kind]].reports[0]
        lines = [number for number, text in enumerate(PLANTED[kind].splitlines(), 1) if "here" in text]
        assert error.file == "work.cu"
        assert error.line in lines, (kind, error)
        assert FINDING[kind] in [each.id for each in result.findings]


def test_by_default_an_error_of_memory_makes_a_candidate_incorrect(judge: JudgeWithBuilder) -> None:
    result = parse(judge.evaluate(asked("uninitialised", memory_errors="MEMORY_ERRORS_UNSPECIFIED")))
    assert result.outcome == result.INCORRECT, result.message
    assert result.incorrect.kind == "memory"
    assert "work.cu:4" in result.message


def test_a_triton_kernel_that_writes_past_its_output_is_found_at_its_line(judge: JudgeWithBuilder) -> None:
    code = TRITON.format(more="tl.store(y_ptr + at + 512, 1.0, at >= 65504)")
    changes = {"reference_code": DOUBLE, "memory_errors": "MEMORY_ERRORS_LABEL"}
    result = parse(judge.evaluate(request(code, sanitize="SANITIZE_ALL", **changes)))
    assert result.outcome == result.CORRECT, result.message
    error = result.sanitizer.runs[0].reports[0]
    assert (error.kernel, error.file, error.line) == ("double", "candidate.py", 10)


def test_counters_say_what_a_kernel_does(judge: JudgeWithBuilder) -> None:
    reference = DOUBLE.replace("1 << 16", "1 << 26")
    code = TRITON.format(more="")
    fields = {"reference_code": reference, "profile_level": "PROFILE_LEVEL_COUNTERS", "run_performance": True}
    result = parse(judge.evaluate(request(code, **fields)))
    assert result.outcome == result.CORRECT, result.message
    assert not result.counters.unavailable, result.counters.unavailable
    print(result.counters.kernels[0].duration_seconds, result.counters.seconds, result.energy, result.reference_energy)
    assert 0 < result.energy.joules_per_call < 1
    assert result.energy.joules_per_call == pytest.approx(result.reference_energy.joules_per_call, rel=0.2)
    assert 50 < result.energy.watts < 1500
    (kernel,) = result.counters.kernels
    assert (kernel.name, kernel.owner) == ("double", pb.KernelUse.OWNER_CANDIDATE)
    assert list(kernel.grid) == [1 << 16, 1, 1]
    assert kernel.dram_throughput > 0.5
    assert kernel.dram_bytes == pytest.approx(2 * 4 * (1 << 26), rel=0.1)
    assert kernel.duration_seconds == pytest.approx(result.candidate_timing.median_seconds, rel=0.3)
    assert kernel.flops == pytest.approx(1 << 26, rel=0.05)
    assert kernel.registers > 0
    assert kernel.advice
    assert "Nsight Compute" in result.counters.tool


MATMUL = """
import torch
import triton
import triton.language as tl

@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inner = tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, STEP):
        a = tl.load(a_ptr + rows * N + start + inner[None, :])
        b = tl.load(b_ptr + (start + inner[:, None]) * N + columns)
        total += tl.dot(a, b)
    tl.store(c_ptr + rows * N + columns, total.to(tl.float16))

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        matmul[(2048 // 128, 2048 // 128)](a, b, c, N=2048, BLOCK=128, STEP=64, num_warps=8)
        return c
"""


def test_operations_of_tensor_cores_are_counted(judge: JudgeWithBuilder) -> None:
    reference = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(2048, 2048, dtype=torch.float16) for _ in range(2)]
"""
    fields = {"reference_code": reference, "profile_level": "PROFILE_LEVEL_COUNTERS"}
    result = parse(judge.evaluate(request(MATMUL, **fields)))
    assert result.outcome == result.CORRECT, result.message
    assert not result.counters.unavailable, result.counters.unavailable
    (kernel,) = result.counters.kernels
    print(kernel)
    assert kernel.flops == pytest.approx(2 * 2048**3, rel=0.05)
    assert kernel.tensor_throughput > 0.05
    assert kernel.roof_share == pytest.approx(kernel.tensor_throughput, rel=0.5)
