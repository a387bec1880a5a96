"""Honest kernels in common idioms pass on stress inputs, and wrong elements are not excused as rounding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.devices import open_device
from kerneldyno.evaluator.judge.checks import arithmetic
from kerneldyno.evaluator.judge.checks.explained import explained, overflown
from kerneldyno.evaluator.judge.memory.footprint import Footprint
from kerneldyno.evaluator.judge.problems import trial
from kerneldyno.evaluator.judge.problems.cache import BuiltProblem
from kerneldyno.evaluator.judge.problems.examination import examine
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.spec import EvalSpec
from kerneldyno.evaluator.toolkits.local import build_local
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.slow

CPU = open_device("cpu:0")
Answer = Callable[..., torch.Tensor]

ATTENTION = """
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        return torch.softmax(scores, -1).to(q.dtype) @ v

def get_inputs():
    return [torch.randn(4, 128, 64, dtype=torch.bfloat16) for _ in range(3)]
"""
GATED = """
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v, g):
        state = torch.zeros(q.shape[0], q.shape[2], v.shape[2], device=q.device, dtype=q.dtype)
        out = []
        for t in range(q.shape[1]):
            state = state * torch.exp(g[:, t])[:, None, None] + k[:, t, :, None] * v[:, t, None, :]
            out.append((q[:, t, :, None] * state).sum(1))
        return torch.stack(out, 1)

def get_inputs():
    gates = torch.nn.functional.logsigmoid(torch.randn(2, 64))
    return [torch.randn(2, 64, 16), torch.randn(2, 64, 16), torch.randn(2, 64, 16), gates]
"""
FORGETTING = """
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v, gate):
        decay = torch.nn.functional.logsigmoid(gate).exp()
        state = torch.zeros(q.shape[0], q.shape[2], v.shape[2])
        out = []
        for t in range(q.shape[1]):
            state = state * decay[:, t, None, None] + k[:, t, :, None] * v[:, t, None, :]
            out.append((q[:, t, :, None] * state).sum(1))
        return torch.stack(out, 1)

def get_inputs():
    return [*torch.randn(3, 64, 128, 16), torch.randn(64, 128) + 2]
"""
SCAN = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, decay):
        state, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = state * decay[:, t] + x[:, t]
            out.append(state)
        return torch.stack(out, 1)

def get_inputs():
    return [torch.randn(8, 64, 32), torch.sigmoid(torch.randn(8, 64, 32) + 2)]
"""
PRODUCT = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(128, 512).half(), torch.randn(512, 128).half()]
"""


def online_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention block by block with a running maximum.

    Weights are rounded before they are multiplied by the values, because tensor cores need it.
    """
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    largest = torch.full(scores.shape[:-1], -math.inf)
    total, sums = torch.zeros(scores.shape[:-1]), torch.zeros(q.shape)
    for start in range(0, k.shape[-2], 32):
        block = scores[..., start : start + 32]
        new = torch.maximum(largest, block.amax(-1))
        weights, fading = torch.exp(block - new[..., None]), torch.exp(largest - new)
        total = total * fading + weights.sum(-1)
        partial = weights.to(q.dtype).float() @ v[..., start : start + 32, :].float()
        sums, largest = sums * fading[..., None] + partial, new
    return (sums / total[..., None]).to(q.dtype)


def in_chunks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Compute sixteen steps at once, with a division by the product of earlier decays.

    The quotient overflows where decays are stronger than the problem draws them.
    """
    state, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2]), []
    for start in range(0, q.shape[1], 16):
        sums = g[:, start : start + 16].cumsum(1)
        queries, keys, values = (each[:, start : start + 16] for each in (q, k, v))
        scaled = queries * torch.exp(sums)[..., None]
        inside = (scaled @ (keys * torch.exp(-sums)[..., None]).transpose(1, 2)).tril()
        out.append(inside @ values + scaled @ state)
        last = sums[:, -1:]
        state = state * torch.exp(last)[..., None] + (keys * torch.exp(last - sums)[..., None]).transpose(1, 2) @ values
    return torch.cat(out, 1)


def by_differences(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Compute sixteen steps at once.

    The decay between two steps is a difference of sums of logarithms, which are added up in float32 as on a GPU.
    """
    logs = torch.nn.functional.logsigmoid(gate)
    state, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2]), []
    for start in range(0, q.shape[1], 16):
        steps, sums = logs[:, start : start + 16], torch.zeros_like(logs[:, :16])
        for at in range(steps.shape[1]):
            sums[:, at] = sums[:, at - 1] + steps[:, at]
        queries, keys, values = (each[:, start : start + 16] for each in (q, k, v))
        later = torch.ones(sums.shape[1], sums.shape[1], dtype=torch.bool).triu(1)
        between = (sums[:, :, None] - sums[:, None, :]).masked_fill(later, -math.inf).exp()
        out.append(
            ((queries @ keys.transpose(1, 2)) * between) @ values + torch.exp(sums)[..., None] * (queries @ state)
        )
        kept = keys * torch.exp(sums[:, -1:] - sums)[..., None]
        state = state * torch.exp(sums[:, -1:])[..., None] + kept.transpose(1, 2) @ values
    return torch.cat(out, 1)


def by_logarithms(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """Compute a scan at once. Decays must be positive."""
    sums = torch.log(decay).cumsum(1)
    return torch.exp(sums) * torch.cumsum(x * torch.exp(-sums), 1)


def split_in_half(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply in four parts. Partial products are kept in half precision, and they may be larger than their sum."""
    parts = [(a[:, at : at + 128].float() @ b[at : at + 128].float()).half() for at in range(0, 512, 128)]
    return parts[0] + parts[1] + parts[2] + parts[3]


IDIOMS = {
    "attention block by block": (ATTENTION, online_attention),
    "a recurrence in chunks": (GATED, in_chunks),
    "a scan by logarithms": (SCAN, by_logarithms),
    "a product in parts": (PRODUCT, split_in_half),
}


@functools.cache  # no test changes the result
def examined(source: str) -> tuple[EvalSpec, BuiltProblem]:
    spec = judge_harness.spec("", reference_code=source, backend="torch", stress_inputs=True)
    problem = build_local(spec.problem, CPU, 3)
    return spec, BuiltProblem(problem, examine(problem, spec, CPU), Footprint(1, 1, 1, 0, 0))


def answered(current: trial.Trial, answer: torch.Tensor) -> torch.Tensor:
    slot = torch.zeros(current.slot_bytes, dtype=torch.uint8)
    (view,) = tree.views(slot, [leaf.spec for leaf in current.expected.leaves])
    view.copy_(answer)
    return slot


def refused(spec: EvalSpec, built: BuiltProblem, kernel: Answer, draws: int = 4) -> list[Any]:
    """Return the refused answers on nominal inputs and on each kind of stress: the kind, and what the mismatch says."""
    found = []
    for kind in [None, *built.examination.held]:
        for _ in range(draws):
            current = built.prepare(spec, CPU, 0, kind)
            if kind is not None and not built.examination.can_tell(current.expected):
                continue  # no candidate is tried on such inputs
            slot = answered(current, kernel(*current.inputs.tensors()))
            mismatch = trial.judge_bytes(current, spec, slot).mismatch
            if mismatch and not (kind and explained(built, spec, CPU, current, 0, slot)):
                found.append((kind, mismatch.detail))
    return found


@pytest.mark.parametrize("name", IDIOMS)
def test_honest_kernels_are_right_under_every_stress(name: str) -> None:
    source, kernel = IDIOMS[name]
    spec, built = examined(source)
    assert len(built.examination.held) >= 3, "the problem bears hardly any stress"
    assert refused(spec, built, kernel) == []


def without_the_state(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return torch.cat([in_chunks(*(each[:, at : at + 16] for each in (q, k, v, g))) for at in range(0, 64, 16)], 1)


def without_the_last_block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return online_attention(q, k[..., :-32, :], v[..., :-32, :])


def one_element_off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    right = split_in_half(a, b)
    right[5, 7] *= 1.5
    return right


@pytest.mark.parametrize(
    ("source", "kernel"),
    [(GATED, without_the_state), (ATTENTION, without_the_last_block), (PRODUCT, one_element_off)],
)
def test_mistakes_in_the_same_idioms_are_found(source: str, kernel: Answer) -> None:
    assert refused(*examined(source), kernel)


# Errors that are excused, and errors that are not


def stressed(source: str, kind: str = "rows") -> Iterator[tuple[EvalSpec, BuiltProblem, trial.Trial]]:
    """Yield trials on stress inputs of one kind, but only those on which the reference can be trusted."""
    spec, built = examined(source)
    (held,) = (each for each in built.examination.held if each.kind == kind)
    while True:
        current = built.prepare(spec, CPU, 0, held)
        if built.examination.can_tell(current.expected):
            yield spec, built, current


def beyond_tolerance(current: trial.Trial, spec: EvalSpec, moves: Sequence[float]) -> torch.Tensor:
    """Return the right answer, with its first elements moved by `moves` times the error that is allowed there."""
    (leaf,) = current.expected.leaves
    answer = leaf.value.clone()
    allowed = 1e-4 * (leaf.truth.abs() + leaf.typical) + 8 * leaf.noise
    for at, times in enumerate(moves):
        answer.view(-1)[at] += times * float(allowed.view(-1)[at])
    return answered(current, answer)


CANCELS = PRODUCT.replace(".half()", "")


def test_a_large_error_of_one_element_is_no_rounding() -> None:
    spec, built, current = next(stressed(CANCELS))
    slot = beyond_tolerance(current, spec, [1000.0])
    assert trial.judge_bytes(current, spec, slot).mismatch is not None
    assert explained(built, spec, CPU, current, 0, slot) == ""


def test_many_wrong_elements_are_not_excused_however_little_they_are_off() -> None:
    spec, built, current = next(stressed(CANCELS))
    slot = beyond_tolerance(current, spec, [1.01] * 1000)
    assert explained(built, spec, CPU, current, 0, slot) == ""


def test_sums_with_few_digits_left_are_excused() -> None:
    """In about a quarter of the draws, gates are so strong that the difference of two sums of logarithms is coarse."""
    found = 0
    for spec, built, current in stressed(FORGETTING, "patch"):
        slot = answered(current, by_differences(*current.inputs.tensors()))
        if trial.judge_bytes(current, spec, slot).mismatch is not None:
            assert explained(built, spec, CPU, current, 0, slot)
            found += 1
        if found == 3:
            break


@pytest.mark.parametrize(("rows", "times", "excused"), [(1, 1.1, True), (1, 1e6, False), (64, 1.1, False)])
def test_rows_are_excused_as_a_whole_where_few_are_off(rows: int, times: float, excused: bool) -> None:
    """If two keys have nearly the same weight, rounding decides between them for all elements of a row at once."""
    source = ATTENTION.replace(", dtype=torch.bfloat16", "")
    for drawn in stressed(source, "large"):
        spec, built, current = drawn
        (leaf,) = current.expected.leaves
        off = float((leaf.value.double() - leaf.truth).abs().max())
        # A limit comes from a few random runs. The smallest of several limits is certain enough for a single row.
        found = [
            arithmetic.limits(built.problem, CPU, current, pb.PRECISION_TF32, 0, 1e-4, off)
            for _ in range(4 if rows == 1 else 1)
        ]
        most = torch.stack([each for each in found if each is not None]).amin(0)
        allowed = 1e-4 * (leaf.truth.abs() + leaf.typical) + 8 * leaf.noise
        undecided = (most > 2 * allowed).all(-1).nonzero()[:rows]
        if len(undecided) == rows:
            break
    answer = leaf.value.clone()
    for at in map(tuple, undecided.tolist()):
        answer[at] += (times * allowed[at]).to(answer.dtype)
    slot = answered(current, answer)
    assert trial.judge_bytes(current, spec, slot).mismatch is not None
    assert bool(explained(built, spec, CPU, current, 0, slot)) is excused


def test_what_is_no_number_is_not_excused() -> None:
    spec, built, current = next(stressed(CANCELS))
    answer = current.expected.leaves[0].value.clone()
    answer[0, 0] = math.nan
    assert explained(built, spec, CPU, current, 0, answered(current, answer)) == ""


@pytest.mark.parametrize(
    ("infinite", "off", "excused"), [(5, 0, True), (0, 5, False), (5, 1, False), (1000, 0, False), (0, 0, False)]
)
def test_a_few_elements_that_overflow_are_told_from_other_mistakes(infinite: int, off: int, excused: bool) -> None:
    spec, _, current = next(stressed(CANCELS))
    (leaf,) = current.expected.leaves
    answer = leaf.value.clone()
    answer.view(-1)[:infinite] = math.inf
    answer.view(-1)[-1 - off : -1] += 100 * leaf.typical + 100 * leaf.noise
    assert bool(overflown(spec, current, answered(current, answer))) is excused


@pytest.mark.parametrize(("rows", "hit", "excused"), [(40, 1, True), (40, 2, False), (20, 1, True), (19, 1, False)])
def test_one_row_of_a_small_output_may_overflow(rows: int, hit: int, excused: bool) -> None:
    small = CANCELS.replace("randn(128, 512)", f"randn({rows}, 512)")
    spec, _, current = next(stressed(small))
    answer = current.expected.leaves[0].value.clone()
    answer[:hit] = math.inf
    assert bool(overflown(spec, current, answered(current, answer))) is excused


def test_partial_sums_in_half_precision_are_excused() -> None:
    trials = stressed(PRODUCT, "sorted")
    share = torch.zeros(1)
    while float(share.max()) < 1.2:  # about every second draw has such an element
        spec, built, current = next(trials)
        (leaf,) = current.expected.leaves
        one, other = (tensor.double().abs() for tensor in current.inputs.tensors())
        allowed = 4e-3 * (leaf.truth.abs() + leaf.typical) + 8 * leaf.noise
        # If large terms nearly cancel in an element, it is off by the rounding of these terms.
        share = (one @ other) * 2.0**-11 / allowed
    at = int(share.argmax())
    answer = leaf.value.clone()
    answer.view(-1)[at] += 1.1 * float(allowed.view(-1)[at])
    slot = answered(current, answer)
    assert trial.judge_bytes(current, spec, slot).mismatch is not None
    assert "1 of 16384 elements" in explained(built, spec, CPU, current, 0, slot)
