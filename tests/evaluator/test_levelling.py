"""What makes a reference in the judge comparable with a candidate in its runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge_harness import request
from kerneldyno.evaluator.devices.cpu import CpuDevice
from kerneldyno.evaluator.judge import examination, trial
from kerneldyno.evaluator.judge.levelling import Level, count_kernels
from kerneldyno.evaluator.judge.problems import Known
from kerneldyno.evaluator.judge.timing import Burst, conclude_trusted
from kerneldyno.evaluator.spec import EvalSpec
from kerneldyno.evaluator.toolkits import toolkits


def test_each_kernel_of_the_reference_is_as_much_slower_as_the_process_of_the_candidate() -> None:
    assert Level(judge=1.9e-6, runner=2.05e-6, kernels=20).seconds == pytest.approx(3e-6)
    assert Level(judge=2.05e-6, runner=1.9e-6, kernels=1).seconds == pytest.approx(-0.15e-6)


@pytest.mark.parametrize(
    "level",
    [
        Level(),
        Level(judge=0.0, runner=2e-6, kernels=5),  # a device whose processes do not differ, or a host that was too slow
        Level(judge=2e-6, runner=0.0, kernels=5),
        Level(judge=2e-6, runner=2.1e-6, kernels=0),  # replayed
        Level(judge=2e-6, runner=9e-6, kernels=5),  # somebody was in the way
        Level(judge=2e-6, runner=float("nan"), kernels=5),
        Level(judge=2e-6, runner=float("inf"), kernels=5),
    ],
)
def test_what_is_not_known_changes_nothing(level: Level) -> None:
    assert level.seconds == 0.0


def test_all_times_of_the_reference_are_levelled_and_none_becomes_nothing() -> None:
    bursts = [Burst(2, 1.0, [4e-6, 6e-6]), Burst(1, 1.0, [5e-6])]
    assert list(conclude_trusted(bursts, 1e-6).samples) == pytest.approx([5e-6, 7e-6, 6e-6])
    assert conclude_trusted(bursts, 1e-6).judge_seconds == pytest.approx(6e-6)
    assert min(conclude_trusted(bursts, -5e-6).samples) > 0


class Counting(CpuDevice):
    """A CPU whose kernels somebody has counted."""

    def __init__(self, counted: Callable[[], int | None]) -> None:
        super().__init__()
        self._counted = counted

    def count_work(self, call: Callable[[], Any]) -> int | None:
        call()
        return self._counted()


def known_and_example(device: CpuDevice, expression: str = "torch.tanh(x)") -> tuple[Known, trial.Trial]:
    source = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn(3, 4)]
"""
    spec = EvalSpec.from_json(request("", reference_code=source))
    problem = toolkits()[spec.toolkit].build(spec, device.torch_device, 5)
    known = Known(problem, examination.examine(problem, spec, device))
    return known, trial.prepare(problem, spec, device, 0)


def _no_memory() -> int:
    raise torch.OutOfMemoryError


def _broken() -> int:
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize(
    ("counted", "kernels"), [(lambda: 20, 20), (lambda: None, 1), (lambda: 0, 1), (_no_memory, 1), (_broken, 1)]
)
def test_kernels_are_counted_or_taken_to_be_one(counted: Callable[[], int | None], kernels: int) -> None:
    device = Counting(counted)
    known, example = known_and_example(device)
    assert count_kernels(known, device, example) == kernels


def test_what_a_reference_does_to_its_inputs_while_it_is_counted_is_undone() -> None:
    device = Counting(lambda: 1)
    known, example = known_and_example(device, "x.add_(1)")
    before = example.inputs.master.clone()
    count_kernels(known, device, example)
    assert torch.equal(before, example.inputs.master)
