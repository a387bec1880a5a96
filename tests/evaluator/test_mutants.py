"""Mutants: each is lazy as its name says, is made only where that is possible, and is right only where it is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kerneldyno.evaluator.judge.problems.mutants import MUTANTS, Leaves, Material

pytestmark = pytest.mark.pure

NAMED = {mutant.name: mutant for mutant in MUTANTS}
Function = Callable[..., torch.Tensor]


def material(function: Function, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Material:
    generator = torch.Generator().manual_seed(4)
    inputs, others = (
        [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes] for _ in range(2)
    )
    return Material(inputs, [function(*inputs)], others, [function(*others)], lambda changed: [function(*changed)])


def made(name: str, function: Function, *shapes: tuple[int, ...]) -> torch.Tensor | None:
    leaves = NAMED[name].make(material(function, *shapes))
    return None if leaves is None else leaves[0]


def passing(function: Function, *shapes: tuple[int, ...]) -> set[str]:
    """Return the names of the mutants that are right."""
    given = material(function, *shapes)
    found = set()
    for mutant in MUTANTS:
        leaves = mutant.make(given)
        if leaves is not None and torch.allclose(leaves[0], given.expected[0], 1e-5, 1e-5):
            found.add(mutant.name)
    return found


ROWS = (16, 128)


def test_names_tell_them_apart() -> None:
    assert len(NAMED) == len(MUTANTS)


@pytest.mark.parametrize(
    "function", [torch.relu, lambda x: torch.softmax(x, -1), lambda x: x.cumsum(-1), lambda x: x.var(-1), torch.sort]
)
def test_no_mutant_is_right_for_an_ordinary_operator(function: Function) -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        result = function(x)
        return result if isinstance(result, torch.Tensor) else result.values

    assert passing(first, ROWS) == set()


@pytest.mark.parametrize(
    ("function", "right"),
    [
        (torch.zeros_like, {"zeros", "another draw's answer", "half of the answer's rows"}),
        (torch.ones_like, {"ones", "another draw's mean", "another draw's answer"}),
        (lambda x: x.clone(), {"a copy of the input", "a straight line through the input"}),
        (lambda x: 2 * x + 1, {"a straight line through the input", "a straight line for each feature"}),
        (torch.sign, {"the sign of the input", "the signs of the data"}),
        (lambda x: x * torch.linspace(1, 2, 128), {"a straight line for each feature"}),
        (lambda x: x.sum().expand(16, 128), {"the answer's first element everywhere"}),
        (lambda x: x.sum(0).expand(16, 128), {"the answer's first row everywhere"}),
        (lambda x: x[:, :64].sum(-1), {"half of the data and zeros"}),
        (lambda x: x[0] * 3, {"the first row of the data"}),
    ],
)
def test_a_mutant_is_right_where_it_does_all_there_is_to_do(function: Function, right: set[str]) -> None:
    assert right <= passing(function, ROWS)


def test_data_that_is_not_read_need_not_be() -> None:
    assert "the second input unread" in passing(lambda x, y: x.relu(), ROWS, ROWS)
    assert "the second input unread" not in passing(lambda x, y: x * y, ROWS, ROWS)
    assert "the first input unread" not in passing(lambda x, y: x * y, ROWS, ROWS)


def test_parts_of_the_answer() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    whole = material(double, ROWS).expected[0]
    half = made("half of the answer's rows", double, ROWS)
    columns = made("the answer's first 64 columns", double, ROWS)
    held = made("the answer's first half held", double, ROWS)
    assert half is not None
    assert columns is not None
    assert held is not None
    assert torch.equal(half[:8], whole[:8])
    assert not half[8:].any()
    assert torch.equal(columns[:, :64], whole[:, :64])
    assert not columns[:, 64:].any()
    assert torch.equal(held[:, :64], whole[:, :64])
    assert torch.equal(held[:, 64:], whole[:, 63:64].expand(16, 64))


@pytest.mark.parametrize(("name", "bits"), [(mutant.name, mutant.bits) for mutant in MUTANTS if mutant.bits])
def test_precision_mutants_round_what_goes_in(name: str, bits: int) -> None:
    given = material(lambda x: x.clone(), ROWS)
    made_of = NAMED[name].make(given)
    assert made_of is not None
    errors = ((made_of[0] - given.inputs[0]) / given.inputs[0]).abs()
    assert 2.0 ** -(bits + 3) < float(errors.max()) <= 2.0 ** -(bits + 1)


def test_nothing_is_left_out_where_inputs_are_as_coarse_already() -> None:
    coarse = material(lambda x: x.clone(), ROWS, dtype=torch.bfloat16)
    assert NAMED["bfloat16 operands"].make(coarse) is None
    assert NAMED["fp8 operands"].make(coarse) is not None


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("a copy of the input", lambda x: x.sum(-1)),
        ("the sign of the input", lambda x: x.half()),
        ("a straight line through the input", lambda x: x.sum(-1)),
        ("half of the answer's rows", lambda x: x.sum()),
        ("another draw's mean row", lambda x: x.sum(-1)),
        ("the answer's first 64 columns", lambda x: x[:, :64]),
        ("the second input unread", lambda x: x),
    ],
)
def test_mutants_that_cannot_be_made(name: str, function: Function) -> None:
    assert made(name, function, ROWS) is None


def test_whole_numbers_can_be_lazy_as_well() -> None:
    inputs, others = ([torch.randint(9, (4, 80), generator=torch.Generator().manual_seed(seed))] for seed in (1, 2))

    def count(leaves: Leaves) -> Leaves:
        return [(leaves[0] > 4).sum(-1)]

    given = Material(inputs, count(inputs), others, count(others), count)
    for mutant in MUTANTS:
        leaves = mutant.make(given)
        assert leaves is None or (leaves[0].dtype, leaves[0].shape) == (torch.int64, (4,)), mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_material_is_left_as_it_was(mutant: object) -> None:
    given = material(torch.relu, ROWS)
    before = [tensor.clone() for tensor in (*given.inputs, *given.expected, *given.other_inputs, *given.other)]
    NAMED[mutant.name].make(given)  # type: ignore[attr-defined]
    after = (*given.inputs, *given.expected, *given.other_inputs, *given.other)
    assert all(map(torch.equal, before, after))
