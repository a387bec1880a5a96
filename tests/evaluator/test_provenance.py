"""Whose kernels ran: owners by name, the names that sources define, coverage, and what follows for the verdict."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from judge_harness import request
from kerneldyno.evaluator.backends import backends
from kerneldyno.evaluator.judge import provenance
from kerneldyno.evaluator.judge.candidate import Candidate
from kerneldyno.evaluator.judge.mutants import MUTANTS
from kerneldyno.evaluator.judge.record import Finished, Record
from kerneldyno.evaluator.judge.trial import Trial
from kerneldyno.evaluator.spec import EvalSpec

LABEL = "PROVENANCE_POLICY_LABEL"
REJECT = "PROVENANCE_POLICY_REJECT_DECOYS"
REQUIRE = "PROVENANCE_POLICY_REQUIRE_OWN_KERNELS"


class Profiled:
    """A candidate whose runner has this to say about what ran: one call of each kernel and its seconds."""

    def __init__(
        self, kernels: dict[str, float], own: list[str], *, policy: str = LABEL, backend: str = "cuda"
    ) -> None:
        self.spec = EvalSpec.from_json(request("", backend=backend, provenance_policy=policy))
        self.record = Record()
        self._answer = {
            "kernels": [[name, 1, seconds] for name, seconds in kernels.items()],
            "own": own,
            "host_seconds": 1.0,
        }

    async def profile(self, last: Trial, calls: int) -> Any:
        return self._answer

    def judged(self) -> dict[str, Any]:
        last = cast(Trial, SimpleNamespace())
        return asyncio.run(provenance.profile(cast(Candidate, self), last))["profile"]

    def findings(self) -> list[str]:
        self.judged()
        return [finding["id"] for finding in self.record.findings]


def owner(name: str, own: list[str]) -> str:
    (kernel,) = Profiled({name: 1.0}, own).judged()["kernels"]
    assert kernel["name"] == name
    return str(kernel["owner"]).removeprefix("OWNER_")


@pytest.mark.parametrize(
    "name",
    [
        "my_kernel",
        "my_kernel(float const*, float*, int)",
        "void my_kernel<float, 4>(float const*, float*, int)",
        "void mine::inner::my_kernel<float>(float*)",
        "(anonymous namespace)::my_kernel(float*)",
        "void (anonymous namespace)::my_kernel<128>(float*)",
    ],
)
def test_own_kernels_are_known_by_their_exact_names(name: str) -> None:
    assert owner(name, ["my_kernel"]) == "CANDIDATE"
    assert owner(name, ["kernel", "my_kernel_2", "my"]) == "LIBRARY"


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float>>(int, float)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::Opaque<4u>>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
        "void at_cuda_detail::cub::DeviceScanKernel<float>(float*)",
        "triton_poi_fused_add_relu_0",
        "triton_per_fused_mean_3",
    ],
)
def test_torchs_kernels_are_torchs(name: str) -> None:
    assert owner(name, ["my_kernel"]) == "TORCH"


def test_a_candidates_kernel_that_is_called_like_atens_makes_none_of_those_its_own() -> None:
    own = ["reduce_kernel", "elementwise_kernel"]
    assert owner("void at::native::reduce_kernel<512>(float*)", own) == "TORCH"
    assert owner("void at::native::(anonymous namespace)::elementwise_kernel<4>(float*)", own) == "TORCH"
    assert owner("reduce_kernel(float*)", own) == "CANDIDATE"


@pytest.mark.parametrize(
    "name",
    ["ampere_sgemm_128x64_tn", "void cutlass::Kernel2<cutlass_80_simt>(int)", "sm90_xmma_gemm_f32f32", "cudnn_bn"],
)
def test_other_kernels_are_libraries(name: str) -> None:
    assert owner(name, ["my_kernel"]) == "LIBRARY"


@pytest.mark.parametrize("name", ["Memcpy DtoD (Device -> Device)", "Memset (Device)", "memcpy_kernel"])
def test_copies_are_memory_whatever_a_candidate_calls_its_kernels(name: str) -> None:
    assert owner(name, ["memcpy_kernel", "Memset"]) == "MEMORY"


def test_names_of_cuda_kernels_are_read_from_the_source() -> None:
    source = """
        __global__ void plain(float* x) {}
        template <typename T> __global__ void __launch_bounds__(256) bounded(T* x) {}
        extern "C" __global__ __launch_bounds__(128, 2) void first(float* x) {}
        static __global__
        void on_its_own_line (float* x) {}
        __device__ float helper(float x) { return x; }
        void host(float* x) { plain<<<1, 1>>>(x); }
    """
    assert backends()["cuda"].own_kernels(source) == ["plain", "bounded", "first", "on_its_own_line"]


def test_triton_kernels_are_known_by_being_launched_not_by_the_source() -> None:
    assert backends()["triton"].own_kernels("@triton.jit\ndef softmax_rows(x): pass") == []


def test_coverage_counts_time_launches_and_what_kernelgym_counts() -> None:
    profile = Profiled({"mine": 3.0, "ampere_sgemm": 1.0}, ["mine"]).judged()
    assert profile["device_time_coverage"] == 0.75
    assert profile["launch_coverage"] == 0.5
    assert profile["kernelgym_coverage"] == 3.0 / (4.0 + 1.0)  # the candidate's device time, of device and host time
    assert profile["device_seconds"] == pytest.approx(4.0 / profile["calls"])
    assert [kernel["name"] for kernel in profile["kernels"]] == ["mine", "ampere_sgemm"]


def test_nothing_that_ran_covers_nothing() -> None:
    profile = Profiled({}, ["mine"]).judged()
    assert (profile["device_time_coverage"], profile["launch_coverage"]) == (0, 0)


@pytest.mark.parametrize(
    ("kernels", "backend", "found"),
    [
        ({"mine": 9.0, "ampere_sgemm": 1.0}, "cuda", []),
        ({"mine": 1.0, "ampere_sgemm": 9.0}, "cuda", ["B01", "S21"]),
        ({"ampere_sgemm": 1.0}, "cuda", ["S19", "B01"]),
        ({"ampere_sgemm": 1.0}, "triton", ["S19", "B01"]),
        ({"ampere_sgemm": 1.0}, "torch", ["B01"]),
        ({}, "cuda", []),
    ],
)
def test_labels(kernels: dict[str, float], backend: str, found: list[str]) -> None:
    assert Profiled(kernels, ["mine"], backend=backend).findings() == found


@pytest.mark.parametrize(
    ("kernels", "policy", "rejected"),
    [
        ({"ampere_sgemm": 1.0}, REJECT, ["S19"]),
        ({"ampere_sgemm": 1.0}, REQUIRE, ["S19"]),
        ({"mine": 1.0, "ampere_sgemm": 9.0}, REQUIRE, ["B01"]),
        ({"mine": 1.0, "ampere_sgemm": 9.0}, REJECT, None),
        ({"mine": 9.0, "ampere_sgemm": 1.0}, REQUIRE, None),
    ],
)
def test_policies(kernels: dict[str, float], policy: str, rejected: list[str] | None) -> None:
    profiled = Profiled(kernels, ["mine"], policy=policy)
    if rejected is None:
        profiled.judged()
        return
    with pytest.raises(Finished) as finished:
        profiled.judged()
    assert finished.value.result["outcome"] == "REJECTED"
    assert finished.value.result["rejected"] == {"finding_ids": rejected}


@pytest.mark.parametrize(("launches", "found"), [(0, ["S19"]), (None, []), (3, [])])
def test_a_triton_candidate_that_launches_nothing_is_a_decoy(launches: int | None, found: list[str]) -> None:
    profiled = Profiled({}, [], backend="triton")
    profiled.record.launched(launches)
    provenance.check_launches(cast(Candidate, profiled))
    assert [finding["id"] for finding in profiled.record.findings] == found


def test_mutants_that_need_no_kernels_exist() -> None:
    assert {mutant.name for mutant in MUTANTS} >= provenance._IDLE_MUTANTS
