"""Errors that come from rounding to a tier (operands, results, intermediate values), and errors that are mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.checks import arithmetic
from kerneldyno.evaluator.judge.comparison.evidence import Mismatch
from kerneldyno.evaluator.judge.problems import trial
from kerneldyno.evaluator.judge.problems.tiers import BITS
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.enums import Precision, Preset
from kerneldyno.evaluator.shared.precision import round_to
from kerneldyno.evaluator.shared.spec import ToleranceRule
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.evaluator.vet import _spec, _under

pytestmark = pytest.mark.pure

CPU = open_device("cpu:0")
NORMAL, PAIR = "torch.randn(64, 256)", "torch.randn(64, 128), torch.randn(128, 48)"
ONE_COLUMN = "torch.rand(256, 128), torch.randn(128, 1)"
TIERS = [Precision.TF32, Precision.BF16, Precision.FP8]

#: A kernel. It takes a function that rounds, and the inputs.
Answer = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    CPU.warm_up()
    yield
    torch.set_num_threads(before)


def said(returned: str, inputs: str, precision: Precision, answer: Answer) -> tuple[Mismatch | None, Precision]:
    """Return the mismatch of an answer for which `precision` is allowed, and the tier that its errors look like."""
    source = f"""
import torch
import torch.nn.functional as functional

class Model(torch.nn.Module):
    def forward(self, *x):
        return {returned}

def get_inputs():
    return [{inputs}]
"""
    plain = _spec(source, ToleranceRule(Preset.CALIBRATED))
    spec = _under(plain, replace(plain.checks.rules, allowed_precision=precision))
    problem = build_local(spec.problem, CPU, 3)
    current = trial.prepare(problem, spec, CPU, 0)
    slot = torch.zeros(current.slot_bytes, dtype=torch.uint8)
    specs = [leaf.spec for leaf in current.expected.leaves]
    bits = BITS[precision]
    (view,) = tree.views(slot, specs)
    view.copy_(answer(lambda tensor: round_to(tensor, bits), *current.inputs.tensors()))
    return (
        arithmetic.unlike_rounding(problem, CPU, current, slot, precision),
        arithmetic.observed(problem, CPU, current, slot),
    )


HONEST: list[tuple[str, str, Answer]] = [
    ("torch.relu(x[0])", NORMAL, lambda r, x: torch.relu(r(x))),
    ("torch.relu(x[0])", NORMAL, lambda r, x: r(torch.relu(x))),
    ("torch.relu(x[0])", NORMAL, lambda r, x: torch.relu(r(x * 1.37) / 1.37)),
    ("functional.gelu(x[0])", NORMAL, lambda r, x: r(functional.gelu(r(x)))),
    # Every step is rounded: for large negative inputs, little of the sum is left.
    (
        "functional.gelu(x[0])",
        NORMAL,
        lambda r, x: r(0.5 * r(x) * r(1 + r(torch.erf(r(r(x) / 2**0.5))))),
    ),
    ("torch.softmax(x[0], -1)", NORMAL, lambda r, x: r(torch.softmax(r(x), -1))),
    ("functional.layer_norm(x[0], (256,))", NORMAL, lambda r, x: functional.layer_norm(r(x), (256,))),
    ("x[0] @ x[1]", PAIR, lambda r, x, y: r(x) @ r(y)),
    ("x[0] @ x[1]", PAIR, lambda r, x, y: r(x * 1.3) @ r(y * 0.7) / 0.91),
    # The rounding of a few numbers causes the errors of all elements, so these may all go one way.
    ("x[0] @ x[1]", ONE_COLUMN, lambda r, x, y: x @ r(y)),
    ("x[0] @ x[1]", ONE_COLUMN, lambda r, x, y: x @ r(y * 1.3) / 1.3),
]


@pytest.mark.parametrize("precision", TIERS)
@pytest.mark.parametrize(("returned", "inputs", "answer"), HONEST)
def test_rounding_is_told_from_mistakes(returned: str, inputs: str, answer: Answer, precision: Precision) -> None:
    evidence, observed = said(returned, inputs, precision, answer)
    assert evidence is None
    assert observed in (Precision.FP32, *TIERS)


def _cut(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Keep only `bits` fraction bits of a float32 tensor, as tensor cores do with longer operands."""
    surplus = 23 - bits
    return ((tensor.view(torch.int32) >> surplus) << surplus).view(torch.float32)


@pytest.mark.parametrize("precision", TIERS)
def test_hardware_that_cuts_off_is_no_mistake(precision: Precision) -> None:
    bits = BITS[precision]
    answer = lambda _, x, y: torch.relu(_cut(x, bits) @ _cut(y, bits))  # noqa: E731
    assert said("torch.relu(x[0] @ x[1])", PAIR, precision, answer)[0] is None
    assert said("torch.relu(x[0])", NORMAL, precision, lambda _, x: torch.relu(_cut(x, bits)))[0] is None


MISTAKES: list[tuple[str, str, Answer]] = [
    # Elements that no rounding moves.
    ("torch.relu(x[0])", NORMAL, lambda _, x: x.clamp(min=0.01)),
    ("torch.relu(x[0])", NORMAL, lambda r, x: r(x).clamp(min=0.01)),
    ("torch.relu(x[0])", NORMAL, lambda _, x: torch.relu(x) - 0.01),
    # A wrong sign for some inputs.
    ("x[0] * 2", NORMAL, lambda _, x: torch.where(x.abs() < 0.05, -2 * x, 2 * x)),
    # All errors go one way: a bias, a factor, another function.
    ("torch.relu(x[0])", NORMAL, lambda _, x: torch.relu(x) * 1.001),
    ("x[0] @ x[1]", PAIR, lambda _, x, y: x @ y + 0.02),
    ("x[0] @ x[1]", PAIR, lambda _, x, y: x @ y * 1.001),
    ("functional.layer_norm(x[0], (256,))", NORMAL, lambda _, x: functional.layer_norm(x, (256,)) + 0.01),
    ("functional.gelu(x[0])", NORMAL, lambda _, x: functional.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize("precision", TIERS)
@pytest.mark.parametrize(("returned", "inputs", "answer"), MISTAKES)
def test_mistakes_are_no_rounding(returned: str, inputs: str, answer: Answer, precision: Precision) -> None:
    evidence, observed = said(returned, inputs, precision, answer)
    assert evidence is not None
    assert evidence.kind == "precision"
    assert observed == Precision.FP32


@pytest.mark.parametrize("odd", ["nan", "inf"])
def test_elements_that_are_no_numbers_hide_nothing(odd: str) -> None:
    returned = f"torch.where(x[0] > 2, float('{odd}'), torch.relu(x[0]))"
    clamped = lambda _, x: torch.where(x > 2, float(odd), x.clamp(min=0.01))  # noqa: E731
    evidence, observed = said(returned, NORMAL, Precision.FP8, clamped)
    assert evidence is not None
    assert observed == Precision.FP32


def test_what_is_too_little_to_tell_is_let_pass() -> None:
    few = lambda _, x: torch.relu(x) * 1.001  # noqa: E731
    assert said("torch.relu(x[0])", "torch.rand(32) + 1", Precision.BF16, few)[0] is None


def test_outputs_without_numbers_and_without_elements() -> None:
    assert said("(x[0] > 0).long()", NORMAL, Precision.BF16, lambda _, x: (x > 0).long())[0] is None
    assert said("x[0][:0]", NORMAL, Precision.BF16, lambda _, x: x[:0])[0] is None
