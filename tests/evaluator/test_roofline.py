"""The roofline: the least that a call moves and computes, what the device can do, and what follows for a candidate."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge.memory.footprint import Footprint
from kerneldyno.evaluator.judge.problems import trial
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem, Problems
from kerneldyno.evaluator.judge.problems.examination import Examination
from kerneldyno.evaluator.judge.results.record import Record
from kerneldyno.evaluator.judge.runners.lease import Lease
from kerneldyno.evaluator.judge.timing import roofline
from kerneldyno.evaluator.judge.timing.roofline import Roof, Work, implausible, position, work_of
from kerneldyno.evaluator.judge.timing.rounds import Quiet
from kerneldyno.evaluator.shared.enums import Precision
from kerneldyno.evaluator.shared.running_problem import Counted, RunningProblem
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

CPU = open_device("cpu:0")
MATMUL = torch.backends.cuda.matmul


def reference(body: str, inputs: str = "torch.randn(32, 128)", layer: str = "None") -> str:
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, *xs):
        {body}

def get_inputs():
    return [{inputs}]
"""


def built(body: str, inputs: str = "torch.randn(32, 128)", layer: str = "None") -> tuple[RunningProblem, trial.Trial]:
    return made({"reference_code": reference(body, inputs, layer)})


def made(asked: dict[str, Any]) -> tuple[RunningProblem, trial.Trial]:
    spec = judge_harness.spec("", **asked)
    problem = build_local(spec.problem, CPU, 7)
    return problem, trial.prepare(problem, spec, CPU, 0)


def count(problem: RunningProblem, example: trial.Trial) -> Counted:
    inputs = example.inputs
    return problem.count(inputs.structure, inputs.specs, inputs.master.clone(), example.seed)


def counted(problem: RunningProblem, example: trial.Trial) -> Work:
    return work_of(problem, example, count(problem, example).flops)


def test_a_linear_layer_is_counted_exactly() -> None:
    work = counted(*built("return self.layer(*xs)", layer="nn.Linear(128, 64)"))
    assert work.input_bytes == 4 * 32 * 128
    assert work.bytes == 4 * (32 * 128 + 128 * 64 + 64 + 32 * 64)
    assert work.flops == 2 * 32 * 128 * 64


@pytest.mark.parametrize(
    ("body", "inputs", "layer", "flops"),
    [
        ("return self.layer(*xs)", "torch.randn(1, 3, 8, 8)", "nn.Conv2d(3, 4, 3)", 2 * 3 * 9 * 4 * 36),
        ("q, = xs; return F.scaled_dot_product_attention(q, q, q)", "torch.randn(1, 2, 32, 16)", "None", 131072),
        ("a, b = xs; return a @ b", "torch.randn(5, 8, 3), torch.randn(5, 3, 2)", "None", 2 * 5 * 8 * 3 * 2),
        ("return torch.relu(xs[0]).sort(-1).values", "torch.randn(8, 8)", "None", 0),
    ],
)
def test_operations(body: str, inputs: str, layer: str, flops: int) -> None:
    assert counted(*built(body, inputs, layer)).flops == flops


def test_a_reference_that_the_counter_cannot_run_has_no_operations() -> None:
    problem, example = built("assert _get_current_dispatch_mode() is None; return xs[0] @ xs[0].T")
    work = counted(problem, example)
    assert (work.flops, work.bytes) == (0, 4 * (32 * 128 + 32 * 32))


def test_counting_leaves_the_trial_as_it_was() -> None:
    problem, example = built("return xs[0].mul_(2)")
    before = example.inputs.master.clone()
    count(problem, example)
    assert torch.equal(example.inputs.master, before)


def test_fixed_cases_have_bytes_alone() -> None:
    cases = [
        {"inputs_json": f'[{{"tensor": [{n}.0, 2.0]}}, 3]', "expected_json": '{"tensor": [2.0], "dtype": "float64"}'}
        for n in range(2)
    ]
    work = counted(*made({"reference_code": "", "toolkit": "kernel_simple", "entry_point": "f", "cases": cases}))
    assert work == Work(8, 16, 0)


@pytest.fixture(params=["untouched", "older", "newer"])
def switch(request: pytest.FixtureRequest) -> Iterator[str]:
    """The value of torch's switch for TF32, set in one of the ways that references may use."""
    if request.param == "older":
        MATMUL.allow_tf32 = True
    elif request.param == "newer":
        MATMUL.fp32_precision = "tf32"
    yield MATMUL.fp32_precision
    MATMUL.allow_tf32 = False
    MATMUL.fp32_precision = "none"


def roof(device: CpuDevice | Any = CPU) -> Roof:
    return Roof(device, Lease([]), Quiet(device))


@pytest.mark.skipif(not hasattr(MATMUL, "fp32_precision"), reason="torch 2.8 has the older switch only")
@pytest.mark.parametrize("allowed", [True, False])
def test_torchs_switch_is_set_for_the_product_and_put_back(switch: str, allowed: bool) -> None:
    with roofline._tf32(allowed=allowed):
        assert MATMUL.fp32_precision == ("tf32" if allowed else "ieee")
    assert MATMUL.fp32_precision == switch


@pytest.mark.parametrize("tier", roofline._TIERS)
def test_every_tier_can_be_measured(tier: pb.Precision.ValueType) -> None:
    assert roof().computed(tier) > 1e6


def test_the_cpu_knows_its_cache() -> None:
    assert 1 << 15 <= CPU.cache_bytes() < 1 << 33


def test_a_rate_is_measured_once() -> None:
    async def twice() -> tuple[Any, Any, Any]:
        device = roof()
        return (
            await device.rates(pb.PRECISION_UNSPECIFIED),
            await device.rates(pb.PRECISION_FP32),
            await device.rates(pb.PRECISION_FP32),
        )

    first, second, third = asyncio.run(twice())
    assert first[0] == second[0] > 1e6
    assert first[1] == 0.0
    assert second == third


@pytest.mark.parametrize(
    ("work", "least", "bound"),
    [
        (Work(0, 1000, 0), 1.0, pb.Roofline.BOUND_MEMORY),
        (Work(0, 1000, 5000), 1.0, pb.Roofline.BOUND_MEMORY),
        (Work(0, 1000, 20000), 2.0, pb.Roofline.BOUND_COMPUTE),
    ],
)
def test_the_longer_of_both_is_the_roof(work: Work, least: float, bound: pb.Roofline.Bound.ValueType) -> None:
    said = position(work, 1000.0, 10000.0 if work.flops else 0.0, 4.0)
    assert (said.least_seconds, said.share, said.bound) == (least, least / 4, bound)
    assert (said.bytes, said.flops) == (1000, work.flops)


@pytest.mark.parametrize(
    ("input_bytes", "seconds", "found"),
    [
        (8_000_000, 0.0079, False),
        (8_000_000, 0.0065, False),
        (8_000_000, 0.0063, True),
        (3_900_000, 0.0001, False),  # a cache may hold a good part of it
    ],
)
def test_only_what_is_quicker_than_reading_large_inputs_is_found(input_bytes: int, seconds: float, found: bool) -> None:
    # Bytes of parameters prove nothing: a candidate that knows them may read them once for many calls.
    assert bool(implausible(Work(input_bytes, 1 << 30, 0), 1e9, 1_000_000, seconds)) == found


class SmallCache(CpuDevice):
    """A CPU with a small cache, so that copying several times as much takes little time."""

    def cache_bytes(self) -> int:
        return 1 << 10


def placed(
    problem: RunningProblem, example: trial.Trial, record: Record, seconds: float, device: CpuDevice | None = None
) -> pb.Roofline | None:
    device = device or SmallCache()

    async def begin(*_: object) -> RunningProblem:
        return problem

    async def run() -> pb.Roofline | None:
        lease = Lease([])
        known = BuiltProblem(problem, Examination([]), Footprint(0, 0, 0, 0, 0))
        above = Roof(device, lease, Quiet(device))
        return await roofline.place(above, known, Problems(device, lease, begin), example, record, seconds)

    return asyncio.run(run())


def test_a_candidate_is_placed_and_an_impossible_one_is_a_finding() -> None:
    problem, example = built("return self.layer(*xs)", layer="nn.Linear(128, 64)")
    record = Record()
    said = placed(problem, example, record, 1.0)
    assert said is not None
    assert said.share == said.least_seconds < 1
    assert said.flops_per_second > 0
    assert record.findings == []
    placed(problem, example, record, 1e-12)
    assert [(one.id, one.severity) for one in record.findings] == [("T21", pb.Finding.SEVERITY_INFO)]


@pytest.mark.parametrize(
    ("body", "inputs", "nbytes", "flops"),
    [
        ("return xs[0].argmax(-1), 3, None", "torch.randn(4, 8)", 4 * 32 + 8 * 4, 0),
        ("return xs[0] + 1", "torch.arange(8)", 128, 0),
        ("return {'a': torch.ones(4)}", "", 16, 0),
        ("return xs[0] @ xs[0]", "torch.ones(256, 256, dtype=torch.int64)", 2 * 8 << 16, 2 * 256**3),
    ],
)
def test_whatever_comes_and_goes(body: str, inputs: str, nbytes: int, flops: int) -> None:
    said = placed(*built(body, inputs), Record(), 1e-3)
    assert said is not None
    assert (said.bytes, said.flops) == (nbytes, flops)
    assert bool(said.flops_per_second) == bool(flops)
    computing = flops / said.flops_per_second if flops else 0.0  # the machine decides which one is longer
    assert (said.bound == pb.Roofline.BOUND_COMPUTE) == (computing > nbytes / said.bytes_per_second)


def test_nothing_to_move_is_no_roofline() -> None:
    assert placed(*built("return 3", ""), Record(), 1e-3) is None


class Full(CpuDevice):
    def stopwatch(self, count: int) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_device_without_memory_to_spare_spoils_no_verdict() -> None:
    assert placed(*built("return xs[0]"), Record(), 1e-3, Full()) is None


def test_the_precision_is_the_one_that_was_seen() -> None:
    _, example = built("return xs[0]")
    assert roofline._tier(pb.PRECISION_TF32, example) == pb.PRECISION_TF32
    assert roofline._tier(pb.PRECISION_UNSPECIFIED, example) == pb.PRECISION_FP32
    _, whole = built("return xs[0].argmax(-1)", "torch.randn(4, 8).half()")
    assert roofline._tier(pb.PRECISION_UNSPECIFIED, whole) == pb.PRECISION_FP16


@pytest.mark.gpu
def test_a_gpu_is_measured_to_do_what_gpus_do() -> None:
    gpu = roof(open_device("cuda:0"))
    assert 1e11 < gpu.moved() < 1e14
    rates = {tier: gpu.computed(tier) for tier in roofline._TIERS}
    assert all(1e11 < rate < 1e16 for rate in rates.values()), rates
    assert rates[Precision.BF16] > 1.2 * rates[Precision.FP32], rates
    if torch.cuda.get_device_capability() >= (8, 0):
        assert rates[Precision.TF32] > 1.2 * rates[Precision.FP32], rates


def test_counting_does_not_bring_dynamo_along() -> None:
    """Importing it takes two seconds, in which a judge would stand still."""
    program = """
import sys
import torch
from kerneldyno.evaluator.toolkits.counting import _Counter
counter = _Counter("cpu")
with torch.no_grad(), counter:
    torch.ones(2, 3) @ torch.ones(3, 4)
assert (counter.flops, counter.kernels) == (2 * 2 * 3 * 4, 3)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
