"""Candidates in CuTe DSL, cuTile and TileLang on a GPU. A language that is not installed is skipped.

Decoys in these languages are in corpus/attacks (S19_*, S20_*), where tests/corpus judges them.
"""

from __future__ import annotations

import pytest

from kerneldyno.client import EvalResult, LocalServices
from kerneldyno.evaluator.server import registry
from kerneldyno.v1.evaluation_pb2 import PROVENANCE_POLICY_REQUIRE_OWN_KERNELS, KernelUse
from tests.e2e.e2e_harness import outcome
from tests.gpu.test_gpu import example, judged

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("backend", "name", "kernel"),
    [
        ("cute", "relu/cute_threads", "kernel_cutlass_relu_kernel"),
        ("cutile", "relu/cutile_blocks", "relu_kernel"),
        ("tilelang", "row_mean/tilelang_rows", "mean_kernel"),
    ],
)
async def test_the_example_is_correct_and_its_kernel_is_its_own(
    gpu_services: LocalServices, backend: str, name: str, kernel: str
) -> None:
    if backend not in registry.backend_names():
        pytest.skip(f"kerneldyno[{backend}] is not installed")
    asked = example(name, backend=backend, enable_profiling=True)
    asked.provenance_policy = PROVENANCE_POLICY_REQUIRE_OWN_KERNELS
    result = await judged(gpu_services, asked)
    assert outcome(result) == EvalResult.Outcome.Name(EvalResult.CORRECT), result
    own = [use.name for use in result.profile.kernels if use.owner == KernelUse.OWNER_CANDIDATE]
    assert [found.startswith(kernel) for found in own] == [True]
    assert result.profile.device_time_coverage == 1
