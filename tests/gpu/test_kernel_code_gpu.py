"""The code of kernels on a GPU: registers, spills and listings of Triton's kernels and of a library's."""

from __future__ import annotations

import pytest

from kerneldyno.client import LocalServices
from kerneldyno.v1.evaluation_pb2 import CODE_LISTING_ALL, CODE_LISTING_SASS, EvalResult, KernelCode
from tests.e2e.e2e_harness import outcome
from tests.gpu.test_gpu import example, judged, smi
from tests.gpu.test_native_gpu import BINDING, BOUND, request, softmax

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

#: Each thread keeps BLOCK / 32 numbers at once.
TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count)
    tl.store(y_ptr + at, tl.maximum(x, 0.0), at < count)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), SIZE),)](x, y, x.numel(), BLOCK=SIZE, num_warps=1)
        return y
"""
LAUNCH = "relu_kernel[(triton.cdiv(x.numel(), SIZE),)](x, y, x.numel(), BLOCK=SIZE, num_warps=1)"
TUNE = """
configs = [triton.Config({"BLOCK": size}, num_warps=1) for size in (256, 512, 16384)]

@triton.autotune(configs, key=["count"])
@triton.jit
"""
TUNED = TRITON.replace("@triton.jit\n", TUNE).replace(
    LAUNCH, "relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, y, x.numel())"
)
#: A thread has 32 registers, and keeps 64 numbers at once.
SPILLING = """
__global__ void __launch_bounds__(1024, 2) relu_kernel(const float* x, float* y, int64_t n) {
    float kept[64];
    int64_t first = blockIdx.x * (int64_t)1024 * 64 + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 64; ++i) kept[i] = first + i * 1024 < n ? x[first + i * 1024] : 0.f;
#pragma unroll
    for (int i = 0; i < 64; ++i) if (first + i * 1024 < n) y[first + i * 1024] = fmaxf(kept[i], 0.f);
}
"""


def kernels(result: EvalResult) -> list[KernelCode]:
    assert outcome(result) == "CORRECT", result
    assert "D22" not in {finding.id for finding in result.findings}, result.findings
    return list(result.kernel_code)


@pytest.mark.parametrize(("size", "spills"), [(1024, False), (16384, True)])
async def test_a_triton_kernel(gpu_services: LocalServices, size: int, spills: bool) -> None:
    asked = example("relu/triton_blocks", kernel_code=TRITON.replace("SIZE", str(size)), code_listing=CODE_LISTING_ALL)
    (kernel,) = kernels(await judged(gpu_services, asked))
    assert (kernel.name, kernel.origin, kernel.warps) == ("relu_kernel", "triton", 1)
    assert kernel.registers > 0
    assert (kernel.spill_bytes > 0) == spills
    assert ".visible .entry relu_kernel" in kernel.ptx
    assert "S2R" in kernel.sass
    assert kernel.truncated or ("STG" in kernel.sass and "EXIT" in kernel.sass)


async def test_of_kernels_that_were_tuned_the_chosen_one_is_listed(gpu_services: LocalServices) -> None:
    asked = example("relu/triton_blocks", kernel_code=TUNED)
    (kernel,) = kernels(await judged(gpu_services, asked))
    assert (kernel.name, kernel.ptx, kernel.sass) == ("relu_kernel", "", "")


async def test_a_kernel_of_several_files(gpu_services: LocalServices) -> None:
    asked = softmax()
    asked.code_listing, asked.enable_profiling = CODE_LISTING_SASS, True
    found = kernels(await judged(gpu_services, asked))
    kernel = found[0]
    assert kernel.name.startswith("softmax_kernel")
    assert kernel.origin.startswith("native")
    assert kernel.registers > 0
    assert kernel.spill_bytes == 0
    assert "EXIT" in kernel.sass
    assert kernel.ptx == ""


async def test_a_kernel_that_spills_and_whose_library_holds_ptx(gpu_services: LocalServices) -> None:
    before, _, after = BINDING.partition("__global__")
    source = before + SPILLING + after[after.index("torch::Tensor relu(") :]
    source = source.replace("(x.numel() + 255) / 256, 256", "(x.numel() + 65535) / 65536, 1024")
    number = smi("compute_cap").replace(".", "")
    flags = [f"-gencode=arch=compute_{number},code=[sm_{number},compute_{number}]"]
    asked = request(
        "relu",
        kernel_code=BOUND,
        kernel_files={"relu.cu": source},
        build_flags={"cuda": flags},
        code_listing=CODE_LISTING_ALL,
    )
    (kernel,) = kernels(await judged(gpu_services, asked))
    assert kernel.name.startswith("relu_kernel(float const*")
    assert kernel.registers == 32
    assert kernel.spill_bytes > 0
    assert ".visible .entry" in kernel.ptx
    assert f".target sm_{number}" in kernel.ptx
    assert "STL" in kernel.sass


async def test_a_library_without_ptx_is_told(gpu_services: LocalServices) -> None:
    asked = softmax()
    asked.code_listing = CODE_LISTING_ALL
    result = await judged(gpu_services, asked)
    assert outcome(result) == "CORRECT", result
    (evidence,) = [finding.evidence for finding in result.findings if finding.id == "D22"]
    assert "holds no PTX" in evidence
    assert "EXIT" in result.kernel_code[0].sass
