"""Whose kernels ran: owners by name, coverage, surveys, and what follows for the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.judge.checks import provenance
from kerneldyno.evaluator.judge.checks.candidate import Candidate
from kerneldyno.evaluator.judge.problems.mutants import MUTANTS
from kerneldyno.evaluator.judge.problems.trial import Trial
from kerneldyno.evaluator.judge.results.record import Finished, Record
from kerneldyno.evaluator.judge.runners.answers import RunnerGarbled
from kerneldyno.evaluator.judge.runners.handle import RunnerGone
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

LABEL = "PROVENANCE_POLICY_LABEL"
REJECT = "PROVENANCE_POLICY_REJECT_DECOYS"
REQUIRE = "PROVENANCE_POLICY_REQUIRE_OWN_KERNELS"


class Profiled:
    """A candidate whose runner reports this profile: one launch of each kernel, and its seconds."""

    def __init__(
        self,
        kernels: dict[str, float],
        own: list[str],
        *,
        policy: str = LABEL,
        backend: str = "cuda",
        averages: Sequence[tuple[str, float, float]] = (),
        empty: int = 0,
    ) -> None:
        self.spec = judge_harness.spec("", backend=backend, provenance_policy=policy)
        self.record = Record()
        #: Number of requests so far, and number of first profiles that are empty.
        self.asked, self._empty = 0, empty
        self._kernels = [[name, 1, seconds] for name, seconds in kernels.items()]
        self._rest = {"own": own, "averages": [list(row) for row in averages], "failed": ""}

    async def profile(self, last: Trial, calls: int) -> Any:
        self.asked += 1
        if self.asked <= self._empty:
            return {"kernels": [], "own": [], "averages": [], "failed": "RuntimeError: CUPTI is held by another"}
        return {"kernels": self._kernels, **self._rest}

    def told(self) -> pb.KernelProfile | None:
        return asyncio.run(provenance.profile(cast(Candidate, self), cast(Trial, SimpleNamespace())))

    def judged(self) -> pb.KernelProfile:
        profile = self.told()
        assert profile is not None
        return profile

    def findings(self) -> list[str]:
        self.told()
        return [finding.id for finding in self.record.findings]


def owner(name: str, own: list[str]) -> str:
    (kernel,) = Profiled({name: 1.0}, own).judged().kernels
    assert kernel.name == name
    return pb.KernelUse.Owner.Name(kernel.owner).removeprefix("OWNER_")


@pytest.mark.parametrize(
    "name",
    [
        "my_kernel",
        "my_kernel(float const*, float*, int)",
        "void my_kernel<float, 4>(float const*, float*, int)",
        "void cutlass::device_kernel<mine::Gemm<128, 64>>(mine::Gemm<128, 64>::Params)",
        "void (anonymous namespace)::my_kernel<128>(float*)",
    ],
)
def test_own_kernels_are_known_by_their_whole_names(name: str) -> None:
    assert owner(name, [name]) == "CANDIDATE"
    assert owner(name, ["my", f"{name}_2", "void cutlass::device_kernel<another>()"]) == "LIBRARY"


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
    theirs = "void at::native::reduce_kernel<512>(float*)"
    assert owner(theirs, [theirs, "reduce_kernel"]) == "TORCH"
    assert owner("reduce_kernel(float*)", ["reduce_kernel(float*)"]) == "CANDIDATE"


@pytest.mark.parametrize(
    "name",
    ["ampere_sgemm_128x64_tn", "void cutlass::Kernel2<cutlass_80_simt>(int)", "sm90_xmma_gemm_f32f32", "cudnn_bn"],
)
def test_other_kernels_are_libraries(name: str) -> None:
    assert owner(name, ["my_kernel"]) == "LIBRARY"


@pytest.mark.parametrize("name", ["Memcpy DtoD (Device -> Device)", "Memset (Device)", "memcpy_kernel"])
def test_copies_are_memory_whatever_a_candidate_calls_its_kernels(name: str) -> None:
    assert owner(name, ["memcpy_kernel", "Memset"]) == "MEMORY"


def test_coverage_counts_time_launches_and_what_kernelgym_counts() -> None:
    averages = [("aten::mm", 1.0, 4.0), ("ampere_sgemm", 1.0, 0.0), ("Mine", 3.0, 0.0)]
    profile = Profiled({"mine": 3.0, "ampere_sgemm": 1.0}, ["mine"], averages=averages).judged()
    assert profile.device_time_coverage == 0.75
    assert profile.launch_coverage == 0.5
    # The library's second counts twice: also for the operator that launched it, whose host time counts, too.
    assert profile.kernelgym_coverage == pytest.approx(3.0 / (1.0 + 4.0 + 1.0 + 3.0))
    assert profile.device_seconds == pytest.approx(4.0 / profile.calls)
    assert (profile.torch_share, profile.library_share, profile.memory_share) == (0, 0.25, 0)
    assert [kernel.name for kernel in profile.kernels] == ["mine", "ampere_sgemm"]


@pytest.mark.parametrize(
    ("own", "share"), [(["kernel"], 0.75), (["sum_kernel_of_mine"], 0.75), (["else"], 0.0), ([], 0.0)]
)
def test_kernelgym_takes_names_for_alike_where_one_contains_the_other(own: list[str], share: float) -> None:
    averages = [("SUM_kernel", 3.0, 0.0), ("copy", 1.0, 0.0)]
    assert Profiled({"a": 1.0}, own, averages=averages).judged().kernelgym_coverage == pytest.approx(share)


def test_the_shares_of_all_owners_add_up_to_one() -> None:
    kernels = {"mine": 4.0, "void at::native::f()": 2.0, "ampere_sgemm": 1.5, "Memset (Device)": 0.5}
    profile = Profiled(kernels, ["mine"]).judged()
    shares = [
        getattr(profile, name) for name in ("device_time_coverage", "torch_share", "library_share", "memory_share")
    ]
    assert shares == [0.5, 0.25, 0.1875, 0.0625]


@pytest.mark.parametrize("empty", [1, 2])
def test_an_empty_profile_is_made_again(empty: int) -> None:
    profiled = Profiled({"mine": 1.0}, ["mine"], empty=empty)
    assert profiled.judged().device_time_coverage == 1.0
    assert profiled.asked == empty + 1


@pytest.mark.parametrize("policy", [LABEL, REJECT])
def test_where_no_profile_can_be_had_there_is_no_coverage_and_not_one_of_zero(policy: str) -> None:
    profiled = Profiled({"mine": 1.0}, ["mine"], policy=policy, empty=3)
    assert profiled.told() is None
    (finding,) = profiled.record.findings
    assert (finding.id, finding.severity) == ("D21", pb.Finding.SEVERITY_INFO)
    assert "CUPTI is held by another" in finding.evidence


def test_own_kernels_that_are_required_and_cannot_be_seen_are_not_taken_for_granted() -> None:
    profiled = Profiled({"mine": 1.0}, ["mine"], policy=REQUIRE, empty=3)
    with pytest.raises(Finished) as finished:
        profiled.told()
    assert finished.value.result.rejected.finding_ids == ["B01"]


class Surveyed:
    """A candidate whose runner gives this answer to a survey of one more call."""

    def __init__(self, answer: Any) -> None:
        self.record = Record()
        self._answer = answer

    async def survey(self, last: Trial) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def findings(self) -> list[pb.Finding]:
        asyncio.run(provenance.survey(cast(Candidate, self), cast(Trial, SimpleNamespace())))
        return self.record.findings


def test_a_survey_names_what_else_did_the_work() -> None:
    (finding,) = Surveyed({"operators": ["aten::mm"], "libraries": ["cublasSgemm_v2"]}).findings()
    assert (finding.id, finding.severity) == ("B11", pb.Finding.SEVERITY_INFO)
    assert "aten::mm" in finding.evidence
    assert "cublasSgemm_v2" in finding.evidence
    assert Surveyed({"operators": [], "libraries": []}).findings() == []


def test_a_candidate_that_ends_while_it_is_surveyed_was_right_all_the_same() -> None:
    assert Surveyed(RunnerGone()).findings() == []


@pytest.mark.parametrize("answer", [None, {}, {"operators": "aten::mm", "libraries": []}, {"operators": []}])
def test_what_is_no_survey_came_from_no_harness(answer: Any) -> None:
    with pytest.raises(RunnerGarbled):
        Surveyed(answer).findings()


@pytest.mark.parametrize(
    ("kernels", "backend", "found"),
    [
        ({"mine": 9.0, "ampere_sgemm": 1.0}, "cuda", []),
        ({"mine": 1.0, "ampere_sgemm": 9.0}, "cuda", ["B01", "S21"]),
        ({"ampere_sgemm": 1.0}, "cuda", ["S19", "B01"]),
        ({"ampere_sgemm": 1.0}, "triton", ["S19", "B01"]),
        ({"ampere_sgemm": 1.0}, "torch", ["B01"]),
        ({}, "cuda", ["D21"]),
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
    assert finished.value.result.outcome == pb.EvalResult.REJECTED
    assert finished.value.result.rejected.finding_ids == rejected


@pytest.mark.parametrize(("launches", "found"), [(0, ["S19"]), (None, []), (3, [])])
def test_a_triton_candidate_that_launches_nothing_is_a_decoy(launches: int | None, found: list[str]) -> None:
    profiled = Profiled({}, [], backend="triton")
    profiled.record.launched(launches)
    provenance.check_launches(cast(Candidate, profiled))
    assert [finding.id for finding in profiled.record.findings] == found


def test_mutants_that_need_no_kernels_exist() -> None:
    assert {mutant.name for mutant in MUTANTS} >= provenance._IDLE_MUTANTS
