"""What makes a reference in the judge comparable with a candidate in its runner."""

from __future__ import annotations

import pytest
from judge_harness import request
from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge import trial
from kerneldyno.evaluator.judge.counting import Counted, count
from kerneldyno.evaluator.judge.levelling import Level, shared_kernels
from kerneldyno.evaluator.judge.timing import Burst, conclude_trusted
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
        ("return torch.sort(x).values + x.new_zeros(4)", 3),
    ],
)
def test_operations_that_do_something_are_counted(body: str, kernels: int) -> None:
    assert counted(body).kernels == kernels


def test_a_reference_that_exits_under_the_counter_does_not_take_the_judge_with_it() -> None:
    body = "import torch.utils._python_dispatch as d; assert d._get_current_dispatch_mode() is None or exit(); return x"
    assert counted(body) == Counted()
