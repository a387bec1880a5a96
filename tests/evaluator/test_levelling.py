"""What makes a reference in the judge comparable with a candidate in its runner."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest
from judge_harness import request
from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.devices.base import Pace
from kerneldyno.evaluator.judge import trial
from kerneldyno.evaluator.judge.candidate import Candidate
from kerneldyno.evaluator.judge.counting import Counted, count
from kerneldyno.evaluator.judge.levelling import Level, shared_kernels
from kerneldyno.evaluator.judge.measuring import Measured, report
from kerneldyno.evaluator.judge.record import Record
from kerneldyno.evaluator.judge.timing import Burst, Evidence, conclude_trusted
from kerneldyno.evaluator.spec import EvalSpec
from kerneldyno.evaluator.toolkits import toolkits

CPU = open_device("cpu:0")


def test_all_kernels_are_as_in_a_typical_runner_and_shared_ones_as_in_the_candidates() -> None:
    level = Level(judge=1.9e-6, typical=2.0e-6, runner=2.05e-6, kernels=20, shared=4)
    assert level.seconds == pytest.approx(20 * 0.1e-6 + 4 * 0.05e-6)
    level = Level(judge=2.1e-6, typical=2.0e-6, runner=1.9e-6, kernels=1, shared=1)
    assert level.seconds == pytest.approx(-0.2e-6)


@pytest.mark.parametrize(
    "level",
    [
        Level(),
        Level(0.0, 0.0, 2e-6, 5, 5),  # a device whose processes do not differ, or a host that was too slow
        Level(2e-6, 0.0, 2.1e-6, 5, 5),
        Level(2e-6, 2e-6, 0.0, 5, 5),
        Level(2e-6, 2.1e-6, 2.2e-6, 0, 0),  # replayed
        Level(2e-6, 2e-6, 9e-6, 5, 5),  # somebody was in the way
        Level(2e-6, 9e-6, 9e-6, 5, 5),
        Level(2e-6, 2e-6, float("nan"), 5, 5),
        Level(2e-6, 2e-6, float("inf"), 5, 5),
    ],
)
def test_what_is_not_known_changes_nothing(level: Level) -> None:
    assert level.seconds == 0.0


@pytest.mark.parametrize(
    ("kernels", "launching", "candidates", "shared"),
    [
        (20, 80e-6, 80e-6, 20),  # the reference itself
        (20, 80e-6, 20e-6, 5),
        (20, 80e-6, 1e-9, 1),  # there is one at least
        (20, 80e-6, 9e-3, 20),
        (1, 80e-6, 9e-3, 1),
        (20, 0.0, 20e-6, 1),  # not queued ahead
        (20, 80e-6, 0.0, 1),
        (0, 80e-6, 80e-6, 0),
    ],
)
def test_a_candidate_seems_to_have_as_many_kernels_as_it_takes_to_launch(
    kernels: int, launching: float, candidates: float, shared: float
) -> None:
    assert shared_kernels(kernels, launching, candidates) == pytest.approx(shared)


def test_all_times_of_the_reference_are_levelled_and_none_becomes_nothing() -> None:
    bursts = [Burst(2, 1.0, [4e-6, 6e-6]), Burst(1, 1.0, [5e-6])]
    assert list(conclude_trusted(bursts, 1e-6).samples) == pytest.approx([5e-6, 7e-6, 6e-6])
    assert conclude_trusted(bursts, 1e-6).judge_seconds == pytest.approx(6e-6)
    assert min(conclude_trusted(bursts, -5e-6).samples) > 0


TIMES = [Burst(30, 1.0, [45e-6] * 30, launch_seconds=80e-6) for _ in range(8)]
JUDGE, TYPICAL, RUNNER = Pace(4000.0, 2e9), 4200.0, 4300.0  # 2.0, 2.1 and 2.15 us


def reported(judge: Pace | None, **changes: Any) -> dict[str, Any]:
    """What is said of a candidate that takes as long as the reference, which has twenty kernels."""
    short, long = (Burst(count, 300e-6 + count * 45e-6, [45e-6] * count) for count in (4, 16))
    nothing = [Burst(count, 300e-6 + count * 1e-9, [1e-6] * count) for count in (4, 16, 9)]
    evidence = Evidence(TIMES, nothing, [short, long] * 2, nothing[:2] * 2, "cuda", cold_reference=TIMES)
    measured = Measured(evidence, TIMES, {}, False, False, 20)
    candidate = SimpleNamespace(record=Record(), runner=SimpleNamespace(pace=RUNNER))
    return report(cast(Candidate, candidate), dataclasses.replace(measured, **changes), judge, TYPICAL)


def test_the_report_levels_the_reference_and_leaves_the_candidate() -> None:
    result = reported(JUDGE)
    assert result["candidate_timing"]["median_seconds"] == 45e-6
    assert result["candidate_timing"]["pace_seconds"] == pytest.approx(2.15e-6)
    assert result["reference_timing"]["pace_seconds"] == pytest.approx(2e-6)
    assert result["reference_timing"]["levelled_seconds"] == pytest.approx(20 * 0.1e-6 + 20 * 0.05e-6)
    assert result["reference_timing"]["median_seconds"] == pytest.approx(48e-6)
    assert result["speedup"] == pytest.approx(48 / 45)


def test_more_kernels_than_fit_the_time_are_not_there() -> None:
    result = reported(JUDGE, reference_kernels=500)
    assert result["reference_timing"]["levelled_seconds"] == pytest.approx(22 * 0.15e-6)


def test_a_replay_is_not_levelled_and_without_a_reference_there_is_nothing_to_level() -> None:
    assert reported(JUDGE, reference_replayed=True)["reference_timing"]["levelled_seconds"] == 0
    assert "reference_timing" not in reported(JUDGE, reference=[])


def test_what_could_not_be_levelled_has_a_wider_interval() -> None:
    levelled, unknown = (reported(judge)["speedup_interval"] for judge in (JUDGE, None))
    assert levelled["high"] / levelled["low"] == pytest.approx((1.003 + 0.2 / 45 + 1.2 / 48) ** 2)
    assert unknown["high"] / unknown["low"] == pytest.approx((1.003 + 0.2 / 45 + 4.2 / 45) ** 2)


def counted(body: str) -> Counted:
    source = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        {body}

def get_inputs():
    return [torch.randn(3, 4)]
"""
    spec = EvalSpec.from_json(request("", reference_code=source))
    problem = toolkits()[spec.toolkit].build(spec, CPU.torch_device, 5)
    return count(problem, CPU, trial.prepare(problem, spec, CPU, 0))


@pytest.mark.parametrize(
    ("body", "kernels"),
    [
        ("return torch.tanh(torch.tanh(x))", 2),
        ("return self.layer(x).relu()", 2),
        ("return x.t().reshape(2, 6)[0].clone()", 2),  # a transposed matrix is copied to be reshaped
        ("return torch.empty_like(x).copy_(x)", 1),
        ("return x if x.sum().item() > 1e9 else x.softmax(0)", 2),
        ("return x.view(4, 3)", 1),  # none, and one at least
        ("y = x.tanh(); y.t_(); return y + torch.empty_permuted((4, 3), (1, 0)).copy_(y)", 3),
        ("return x.tanh()[:0].tanh().tanh().sum() + 1", 3),  # nothing is launched for no elements
        ("return torch.sort(x).values + x.new_zeros(4)", 3),
    ],
)
def test_operations_that_do_something_are_counted(body: str, kernels: int) -> None:
    assert counted(body).kernels == kernels


def test_a_reference_that_exits_under_the_counter_does_not_take_the_judge_with_it() -> None:
    body = "import torch.utils._python_dispatch as d; x = x.tanh().tanh(); d._get_current_dispatch_mode() and exit()"
    assert counted(body) == Counted()
