"""Profiles that torch's profiler made on a GPU, and their coverages, which were computed by hand.

recorded_profiles.jsonl holds what the harness reported for candidates of corpus/honest, corpus/attacks and corpus/field
with `enable_profiling`, on one H100 (driver 580, torch 2.11), 2026-11-25, with seconds cut off after the nanosecond.
Only a profiler's own output can show that kernels are found by their names: templates, macros, anonymous namespaces.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneldyno.evaluator.judge.checks import provenance
from kerneldyno.evaluator.judge.checks.candidate import Candidate
from kerneldyno.evaluator.judge.problems.trial import Trial
from kerneldyno.evaluator.judge.results.record import Record
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

LINES = (Path(__file__).parent / "recorded_profiles.jsonl").read_text().splitlines()
RECORDED = {said.pop("candidate"): said for said in map(json.loads, LINES)}

#: Of five calls: microseconds in own kernels and in all kernels, launches of own kernels and of all kernels, and
#: KernelGYM's share: device time of the rows with the name of an own kernel, over device and host time of all rows.
BY_HAND = {
    # A Triton kernel, and five kernels of torch: a sum of floats, a comparison, a conversion, a sum of integers, and a
    # division. Rows of operators have the host time, and repeat the device time of their kernels.
    "cross_entropy_online": (
        (236.357, 236.357 + 14.816 + 7.52 + 12.481 + 12.929 + 9.569),
        (5, 30),
        236.357
        / (
            236.357
            + (40.226 + 655.337 + 14.816 + 12.929)  # aten::sum and two kernels
            + (7.52 + 160.915 + 7.52)  # aten::ne
            + (12.481 + 221.328 + 12.481 + 208.913 + 12.481 + 133.518 + 12.481)  # aten::to, _to_copy, copy_
            + (9.569 + 126.557 + 9.569)  # aten::div
        ),
    ),
    "library_product_fused_epilogue": (
        (13.631, 296.005 + 13.631),
        (5, 10),
        13.631 / (296.005 + 803.69 + 296.005 + 770.603 + 296.005 + 13.631),
    ),
    "cuda_source_device_kernel": ((288.809, 288.809), (5, 5), 1.0),
    "cuda_source_hidden_names": ((283.334, 283.334), (5, 5), 1.0),
    "compiled_reduce_overhead": (
        (0.0, 78.946 + 310.598 + 13.343 + 264.968 + 20.225 + 12.672 + 9.697),
        (0, 35),
        0.0,
    ),
    "S22_cublas_with_copy_kernel": (
        (57.666, 1687.726 + 57.666),
        (5, 10),
        57.666 / (1687.726 + 412.836 + 1687.726 + 57.666),
    ),
    # The candidate's own CUDA graph: the replay launches its kernel, and inputs and outputs are copied.
    "cuda_graph_triton_two_inputs": (
        (899.768, 904.438 + 899.768),
        (5, 15),
        899.768 / (89.762 + 24.469 + 904.438 + 554.407 + 904.438 + 899.768),
    ),
}


class Recorded:
    """A candidate whose runner reports a recorded profile."""

    def __init__(self, name: str, backend: str) -> None:
        policy = "PROVENANCE_POLICY_LABEL"
        self.spec = judge_harness.spec("", backend=backend, provenance_policy=policy)
        self.record = Record()
        self._said = RECORDED[name]

    async def profile(self, last: Trial, calls: int) -> Any:
        return self._said

    def profiled(self) -> pb.KernelProfile:
        profile = asyncio.run(provenance.profile(cast(Candidate, self), cast(Trial, SimpleNamespace())))
        assert profile is not None
        return profile


def test_every_recorded_profile_is_worked_out() -> None:
    assert RECORDED.keys() == BY_HAND.keys()


@pytest.mark.parametrize("name", BY_HAND)
def test_coverages_are_those_that_one_works_out_by_hand(name: str) -> None:
    (own, total), (own_launches, launches), kernelgym = BY_HAND[name]
    profile = Recorded(name, "cuda").profiled()
    assert profile.device_time_coverage == pytest.approx(own / total, rel=1e-6)
    assert profile.launch_coverage == pytest.approx(own_launches / launches)
    assert profile.kernelgym_coverage == pytest.approx(kernelgym, rel=1e-6)
    assert profile.device_seconds == pytest.approx(total * 1e-6 / 5, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("cross_entropy_online", "CANDIDATE TORCH TORCH TORCH TORCH TORCH"),
        ("library_product_fused_epilogue", "LIBRARY CANDIDATE"),
        ("cuda_source_device_kernel", "CANDIDATE"),
        ("compiled_reduce_overhead", "LIBRARY LIBRARY TORCH LIBRARY TORCH TORCH MEMORY"),
        ("cuda_graph_triton_two_inputs", "MEMORY CANDIDATE"),
    ],
)
def test_owners_of_the_longest_first(name: str, owners: str) -> None:
    kernels = Recorded(name, "torch").profiled().kernels
    assert " ".join(pb.KernelUse.Owner.Name(kernel.owner).removeprefix("OWNER_") for kernel in kernels) == owners


def test_a_wrapper_around_a_library_is_labelled() -> None:
    recorded = Recorded("S22_cublas_with_copy_kernel", "cuda")
    recorded.profiled()
    assert [found.id for found in recorded.record.findings] == ["B01", "S21"]
