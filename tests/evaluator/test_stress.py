"""Stress inputs: each kind makes the change that it is meant to make, and keeps what candidates may rely on."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from kerneldyno.evaluator.judge.problems import stress
from kerneldyno.evaluator.judge.problems.stress import Stress, Trait
from kerneldyno.evaluator.shared import pieces

pytestmark = pytest.mark.pure

KINDS = [kind for kind, _ in stress.KINDS]
SEEDS = range(5)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=drawn(seed)) + 0.01


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=drawn(seed))


def changed(
    kind: str, tensor: torch.Tensor, *, seed: int = 1, amplitude: float = 1.0, signed: bool = True
) -> torch.Tensor:
    what = [stress.trait(tensor)]
    result = torch.empty_like(tensor)
    stress.apply(Stress(kind, amplitude, signed), [tensor], what, drawn(seed), [result])
    return result


MEASUREMENTS: dict[str, torch.Tensor] = {
    "numbers": normal(32, 64),
    "half precision": normal(32, 64).half(),
    "few rows": normal(2, 4096),
    "one number each": normal(64, 1),
    "drawn evenly": torch.rand(32, 64, generator=torch.Generator().manual_seed(1)),
    "drawn evenly from somewhere": torch.rand(32, 64, generator=torch.Generator().manual_seed(2)) * 3 + 0.5,
    "few of one sign": normal(4, 4).abs(),
}
FIXED: dict[str, torch.Tensor] = {
    "decays by their logarithms": torch.nn.functional.logsigmoid(normal(32, 64)),
    "decays": torch.sigmoid(normal(32, 64) + 2),
    "steps": torch.nn.functional.softplus(normal(32, 64)),
    "lengths": normal(32, 64).abs() + 0.1,
    "penalties drawn evenly": torch.rand(32, 64, generator=torch.Generator().manual_seed(3)) * -10,
    "whole numbers": torch.arange(100),
    "booleans": normal(100) > 0,
    "a mask": (normal(32, 32) > 0).float(),
    "labels as floats": (normal(200) * 2).round(),
    "boundaries": normal(8, 64).sort(-1).values,
    "positions downwards": torch.arange(64.0).flip(0),
    "a mask that adds": torch.full((32, 32), float("-inf")).triu(1),
    "one number": torch.tensor([0.5]),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_measurements_may_be_changed(name: str) -> None:
    assert stress.trait(MEASUREMENTS[name]) == Trait(free=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FIXED)
def test_what_is_no_measurement_is_left_alone(name: str, kind: str) -> None:
    tensor = FIXED[name]
    assert not stress.trait(tensor).free
    assert torch.equal(changed(kind, tensor), tensor)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(512,), (32, 64), (4, 8, 16), (1, 600), (600, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_shape_dtype_and_input_are_kept(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = normal(*shape).to(dtype)
    before = tensor.clone()
    result = changed(kind, tensor)
    assert (result.shape, result.dtype) == (tensor.shape, tensor.dtype)
    assert torch.equal(tensor, before)
    assert bool(torch.isfinite(result).all())
    assert not torch.equal(result, tensor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_decide_everything(kind: str, seed: int) -> None:
    tensor = normal(32, 64)
    assert torch.equal(changed(kind, tensor, seed=seed), changed(kind, tensor, seed=seed))
    assert not torch.equal(changed(kind, tensor, seed=seed), changed(kind, tensor, seed=seed + 100))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_zeros_stay(kind: str, seed: int) -> None:
    triangle = torch.tril(normal(40, 40))
    assert torch.equal(torch.triu(changed(kind, triangle, seed=seed), 1), torch.zeros(40, 40))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_symmetric_matrices_stay_symmetric(kind: str, seed: int) -> None:
    half = normal(40, 40)
    result = changed(kind, half + half.mT, seed=seed, amplitude=16.0)
    assert torch.equal(result, result.mT)
    assert not torch.equal(result, half + half.mT)


def halves(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = tensor.chunk(2, dim=-1)
    return first, second


def neighbours(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor[..., 0::2], tensor[..., 1::2]


TWICE = {
    "halves": (halves, normal(4, 10, 32).repeat(1, 1, 2)),
    "halves of a vector": (halves, normal(32).repeat(2)),
    "halves of cosines": (halves, torch.outer(torch.arange(40.0), uniform(16)).repeat(1, 2).cos()),
    "neighbours": (neighbours, normal(40, 32).repeat_interleave(2, dim=-1)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TWICE)
def test_rows_that_hold_everything_twice_still_do(name: str, kind: str, seed: int) -> None:
    parts, tensor = TWICE[name]
    result = changed(kind, tensor, seed=seed, amplitude=16.0)
    first, second = parts(result)
    assert torch.equal(first, second)
    assert not torch.equal(result, tensor)
    assert result.shape == tensor.shape


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_hold_everything_four_times_still_do(kind: str, seed: int) -> None:
    result = changed(kind, normal(40, 16).repeat_interleave(2, dim=-1).repeat(1, 2), seed=seed, amplitude=16.0)
    for parts in (halves, neighbours):
        first, second = parts(result)
        assert torch.equal(first, second)


def test_a_row_that_holds_nearly_everything_twice_is_like_any_other() -> None:
    tensor = normal(100, 32).repeat(1, 2)
    tensor[99, -1] += 1
    assert stress.trait(tensor) == Trait(free=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_distributions_stay_distributions(kind: str, seed: int) -> None:
    result = changed(kind, torch.softmax(normal(40, 60), -1), seed=seed)
    assert bool((result > 0).all())
    assert torch.allclose(result.sum(-1), torch.ones(40), atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "signs"])
@pytest.mark.parametrize("seed", SEEDS)
def test_without_signs_positive_numbers_stay_positive(kind: str, seed: int) -> None:
    result = changed(kind, uniform(40, 60), seed=seed, amplitude=16.0, signed=False)
    assert bool((result >= 0).all())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "patch"])
def test_with_signs_both_are_there(kind: str) -> None:
    result = changed(kind, uniform(40, 60), amplitude=16.0)
    assert 0.1 < float((result[result != 0] < 0).float().mean()) < 0.9


def test_signs_are_all_that_changes() -> None:
    tensor = uniform(40, 60)
    assert torch.equal(changed("signs", tensor).abs(), tensor)


def test_large_is_large_and_has_rows_of_one_sign() -> None:
    tensor = uniform(64, 100)
    result = changed("large", tensor, amplitude=200.0)
    assert float(result.abs().max()) > 200
    rows = [row for row in result if bool((row < 0).all())], [row for row in result if bool((row > 0).all())]
    for one_sided in rows:
        assert len(one_sided) >= 15
        assert min(float(row.abs().min()) for row in one_sided) >= 200  # so padding with zeros is wrong


def test_rows_get_scales_of_their_own() -> None:
    tensor = uniform(100, 64)
    sizes = (changed("rows", tensor) / tensor).abs().median(-1).values
    assert float(sizes.max() / sizes.median()) > 8
    assert int((sizes < 2.0**-19).sum()) == 15
    small = (changed("rows", tensor, amplitude=1 / 32) / tensor).abs().median(-1).values
    assert float(small.min()) >= 2.0**-10
    assert float(small.max()) <= 1


def test_sparse_rows_are_nearly_all_zero_all_zero_or_equal() -> None:
    result = changed("sparse", normal(100, 64))
    zero = (result == 0).all(-1)
    equal = (result == result[:, :1]).all(-1) & ~zero
    assert int(zero.sum()) >= 20
    assert int(equal.sum()) == 39
    others = result[~zero & ~equal]
    assert 0.8 < float((others == 0).float().mean()) < 0.97
    assert torch.equal(result[equal], result[equal].bfloat16().float())


def test_sorted_rows_go_both_ways() -> None:
    tensor = normal(100, 64)
    result = changed("sorted", tensor)
    steps = result.diff(dim=-1)
    upwards, downwards = (steps >= 0).all(-1), (steps <= 0).all(-1)
    assert bool((upwards | downwards).all())
    assert 20 < int(upwards.sum()) < 80
    assert torch.equal(result.abs().sort(-1).values, tensor.abs().sort(-1).values)


@pytest.mark.parametrize("amplitude", [45.0, 5.0])
def test_running_products_of_a_wave_sink_and_rise_again(amplitude: float) -> None:
    products = changed("wave", normal(16, 512), amplitude=amplitude).double().abs().log().cumsum(-1)
    # Each factor is random: sums of 256 of their logarithms are off by about 1.
    assert bool((products[:, 255] < 4 - amplitude).all())
    assert bool((products[:, -1].abs() < 6).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_patch_is_small_and_anywhere(seed: int) -> None:
    tensor = normal(64, 80)
    touched = changed("patch", tensor, seed=seed, amplitude=200.0) != tensor
    assert int(touched.sum()) == 8 * 10
    rows, columns = touched.any(1).nonzero(), touched.any(0).nonzero()
    assert int(rows.max() - rows.min()) == 7
    assert int(columns.max() - columns.min()) == 9


@pytest.mark.parametrize("shape", [(3, 3), (16, 24), (4, 8, 32), (40,)])
def test_a_patch_is_never_at_an_edge(shape: tuple[int, ...]) -> None:
    tensor = normal(*shape)
    places = set()
    for seed in range(300):
        touched = (changed("patch", tensor, seed=seed, amplitude=200.0) != tensor).reshape(-1, *shape[-2:]).any(0)
        found = touched.nonzero()
        assert len(found)
        for dim, size in enumerate(touched.shape):
            assert int(found[:, dim].min()) > 0
            assert int(found[:, dim].max()) < size - 1
        places.add(tuple(found[0].tolist()))
    assert len(places) > 4 or shape == (3, 3)


@pytest.mark.parametrize("shape", [(1, 600), (600, 1), (2, 2)])
def test_a_patch_is_there_even_if_a_dimension_has_only_edges(shape: tuple[int, ...]) -> None:
    tensor = normal(*shape)
    assert all(not torch.equal(changed("patch", tensor, seed=seed, amplitude=200.0), tensor) for seed in range(50))


def seasoned(tensor: torch.Tensor, held: list[Stress], seed: int = 3) -> torch.Tensor:
    result = tensor.clone()
    stress.season([result.view(1, -1)], [stress.trait(tensor)], held, drawn(seed))
    return result


SIGNED = [Stress("signs", 1.0, True)]
LARGE = [Stress("large", 16.0, True)]
UNSIGNED = [Stress("large", 3.0, False)]


@pytest.mark.parametrize("held", [SIGNED, LARGE, UNSIGNED])
@pytest.mark.parametrize("seed", SEEDS)
def test_seasoning_changes_few_and_secret_elements(held: list[Stress], seed: int) -> None:
    tensor = normal(100, 1000)
    result = seasoned(tensor, held, seed)
    touched = (result != tensor).nonzero()
    assert 50 < len(touched) <= 100  # some are drawn twice
    assert not torch.equal(touched, (seasoned(tensor, held, seed + 50) != tensor).nonzero())
    assert torch.equal(result, seasoned(tensor, held, seed))


def test_seasoning_is_bounded_and_never_nothing() -> None:
    assert 200 < int((seasoned(normal(1000, 1000), LARGE) != normal(1000, 1000)).sum()) <= 256
    assert int((seasoned(normal(20), LARGE) != normal(20)).sum()) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_seasoning_respects_what_the_problem_bears(seed: int) -> None:
    tensor = uniform(100, 1000)
    assert bool((seasoned(tensor, UNSIGNED, seed) > 0).all())
    assert float((seasoned(tensor, UNSIGNED, seed) / tensor).max()) < 2
    assert float((seasoned(tensor, LARGE, seed) / tensor).abs().max()) > 7
    assert torch.equal(seasoned(tensor, [], seed), tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (normal(100, 100) > 0).float(),
        lambda: torch.softmax(normal(100, 100), -1),
        lambda: normal(100, 100) + normal(100, 100).mT,
        lambda: torch.arange(100),
    ],
)
def test_seasoning_leaves_what_has_a_form(make: Callable[[], torch.Tensor]) -> None:
    assert torch.equal(seasoned(make(), LARGE), make())


def test_seasoning_keeps_zeros() -> None:
    triangle = torch.tril(normal(200, 200))
    assert torch.equal(torch.triu(seasoned(triangle, LARGE), 1), torch.zeros(200, 200))


@pytest.mark.parametrize("shape", [(7, 3), (2, 5, 2), (1, 40)])
def test_pieces_are_all_of_a_tensor_and_views_of_it(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(pieces, "_ELEMENTS", 10)
    tensor = torch.arange(math.prod(shape)).view(shape)
    parts = pieces.pieces(tensor)
    assert torch.equal(torch.cat(list(parts)), tensor)
    assert all(part.numel() <= 10 or part.shape[0] == 1 for part in parts)
    parts[-1].fill_(-1)
    assert int(tensor.reshape(-1)[-1]) == -1


def test_a_large_tensor_is_changed_in_all_of_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_ELEMENTS", 32)
    tensor, target = uniform(16, 8), torch.zeros(16, 8)
    stress.apply(Stress("large", 16.0, signed=False), [tensor], [Trait(free=True)], drawn(0), [target])
    assert bool((target >= 16 * tensor).all())


def test_weaker_stress_is_of_what_was_enlarged_as_a_whole_and_most() -> None:
    assert stress.weaker(Stress("large", 200.0, signed=True)) == Stress("large", 16.0, signed=True)
    assert stress.weaker(Stress("large", 200.0, signed=False)) == Stress("large", 16.0, signed=False)
    assert stress.weaker(Stress("large", 16.0, signed=True)) is None
    strongest = [Stress(kind, amplitudes[0], signed=True) for kind, amplitudes in stress.KINDS if kind != "large"]
    assert all(stress.weaker(each) is None for each in strongest)
