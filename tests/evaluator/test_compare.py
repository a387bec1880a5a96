"""The comparison: which answers pass, which do not, and what their mismatches say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kerneldyno.evaluator.judge.comparison.compare import compare, expect
from kerneldyno.evaluator.judge.comparison.evidence import Comparison
from kerneldyno.evaluator.judge.problems.tiers import BITS, RECOGNISED, recognise, rms
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.shared.enums import Precision
from kerneldyno.evaluator.shared.precision import round_to
from kerneldyno.evaluator.shared.spec import ToleranceRule
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

CALIBRATED = ToleranceRule(pb.Tolerance.PRESET_CALIBRATED, None, None)
ALLCLOSE = ToleranceRule(pb.Tolerance.PRESET_ALLCLOSE, None, None)
LOOSE = ToleranceRule(pb.Tolerance.PRESET_LOOSE, None, None)


def outcome(
    expected: Any, got: Any, rule: ToleranceRule = CALIBRATED, precise: Any = None, allowed: Any = None
) -> Comparison:
    structure, values = tree.flatten(expected)
    precise_values, allowed_values = (None if twin is None else tree.flatten(twin)[1] for twin in (precise, allowed))
    got_structure, got_values = tree.flatten(got)
    specs = [tree.describe(value, keep_layout=False) for value in got_values]
    others = [] if allowed_values is None else [allowed_values]
    return compare(expect(structure, values, precise_values, others), got_structure, specs, got_values, rule)


def kind(comparison: Comparison) -> str | None:
    return None if comparison.mismatch is None else str(comparison.mismatch.kind)


def test_zeros_do_not_pass_for_small_values() -> None:
    x = torch.softmax(0.5 * torch.randn(4, 100_000), -1)
    assert x.max() < 1e-3
    assert kind(outcome(x, torch.zeros_like(x))) == "values"
    assert kind(outcome(x, torch.zeros_like(x), LOOSE)) is None  # which is why LOOSE is not the default


def test_rounding_passes_at_any_scale() -> None:
    for scale in (1e-20, 1.0, 1e20):
        x = torch.randn(1000, dtype=torch.float64) * scale
        assert kind(outcome(x.float(), (x * (1 + 1e-6)).float(), precise=x)) is None


def test_noise_of_the_reference_is_allowed() -> None:
    a, b = torch.randn(8, 20_000), torch.randn(20_000, 8)
    precise = a.double() @ b.double()
    reference = (a @ b) + 0.02 * precise.std().float() * torch.sign(torch.randn(8, 8))
    honest = (a @ b) - 0.02 * precise.std().float()
    assert kind(outcome(reference, honest, precise=precise)) is None
    assert kind(outcome(reference, honest)) == "values"


def test_a_twin_that_is_another_function_is_not_used_as_truth() -> None:
    x = torch.randn(100)
    assert kind(outcome(x, x, precise=torch.randn(100, dtype=torch.float64))) is None


def test_reduced_precision_is_found_out_and_can_be_allowed() -> None:
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    rounded = (a.bfloat16() @ b.bfloat16()).float()
    precise = a.double() @ b.double()
    assert kind(outcome(a @ b, rounded, precise=precise)) == "values"
    bits = BITS[Precision.BF16]
    allowed = round_to(a, bits).double() @ round_to(b, bits).double()
    assert kind(outcome(a @ b, rounded, precise=precise, allowed=allowed)) is None


def test_errors_together_tell_a_tier_on_inputs_like_the_timed_ones_only() -> None:
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    precise = a.double() @ b.double()
    rounded = [round_to(a, 10).double() @ round_to(b, 10).double()]
    expected = expect([{"tensor": 0}], [a @ b], [precise], [], rounded)
    coarse = round_to(a, 7) @ round_to(b, 7)
    specs = [tree.describe(coarse)]
    assert kind(compare(expected, expected.structure, specs, [coarse], CALIBRATED)) == "precision"
    stressed = expected.element_by_element()
    assert kind(compare(stressed, expected.structure, specs, [coarse], CALIBRATED)) is None
    assert kind(compare(stressed, expected.structure, specs, [coarse * 1.1], CALIBRATED)) == "values"


def test_a_few_outliers_do_not_loosen_the_tolerance_of_the_others() -> None:
    x = torch.randn(100_000)
    x[0] = 1e7
    y = x.clone()
    y[1] += 0.1
    assert kind(outcome(x, y)) == "values"


def test_a_number_that_no_float_holds_is_a_wrong_number() -> None:
    assert kind(outcome(3, 10**400)) == "values"


def test_rounding_agrees_with_the_real_formats() -> None:
    x = torch.randn(10_000)
    x = x[x.abs() > 1e-3]  # far from the subnormal numbers of half precision, which have fewer bits
    assert torch.equal(round_to(x, 7), x.bfloat16().float())
    assert torch.equal(round_to(x, 10), x.half().float())


def test_the_contract_numbers_tiers_from_fine_to_coarse() -> None:
    """The judge compares these numbers to find the coarser of two tiers."""
    in_order = sorted(BITS)
    assert in_order[0] > pb.PRECISION_UNSPECIFIED
    assert [BITS[tier] for tier in in_order] == sorted(BITS.values(), reverse=True)
    assert len(BITS) == len(pb.Precision.values()) - 1


def test_tiers_are_recognised_by_their_errors() -> None:
    a, b = torch.randn(128, 256), torch.randn(256, 128)
    truth = a.double() @ b.double()
    own = rms((a @ b).double() - truth)
    tiers = []
    for name in RECOGNISED:
        bits = BITS[name]
        tiers.append((name, rms(round_to(a, bits).double() @ round_to(b, bits).double() - truth)))
    assert recognise(own, own, tiers, pb.PRECISION_FP32) == pb.PRECISION_FP32
    assert recognise(3 * own, own, tiers, pb.PRECISION_FP32) == pb.PRECISION_FP32
    for name, size in tiers:
        assert recognise(size, own, tiers, pb.PRECISION_FP32) == name
    assert recognise(rms(truth), own, tiers, pb.PRECISION_FP32) == pb.PRECISION_FP32  # an answer of zeros is of no tier


@pytest.mark.parametrize(("error", "taken"), [(1.5, 1), (12.0, 2), (90.0, 3)])
def test_no_more_tiers_are_computed_than_are_needed_to_tell(error: float, taken: int) -> None:
    seen = []

    def tiers() -> Iterator[tuple[str, float]]:
        for name, size in zip(RECOGNISED, (1.0, 8.0, 128.0), strict=True):
            seen.append(name)
            yield name, size

    assert recognise(error, 1e-4, tiers(), pb.PRECISION_FP32) == RECOGNISED[taken - 1]
    assert len(seen) == taken


@pytest.mark.parametrize(
    ("expected", "got", "wrong"),
    [
        (torch.ones(3), torch.ones(4), "shape"),
        (torch.ones(3), torch.ones(3, 1), "shape"),
        (torch.ones(3), torch.ones(3, dtype=torch.float64), "dtype"),
        (torch.ones(3), (torch.ones(3),), "structure"),
        ((torch.ones(3), torch.ones(2)), (torch.ones(3),), "structure"),
        ([torch.ones(3)], (torch.ones(3),), "structure"),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}, "structure"),
        ({"a": torch.ones(1)}, {"a": None}, "structure"),
        ({"a": torch.ones(1)}, {}, "structure"),
        ({1: torch.ones(1)}, {True: torch.ones(1)}, "structure"),
        (torch.ones(3), None, "structure"),
        (3, 4, "values"),
        (3, 3.0, "structure"),
        (3.0, 3, "structure"),
        (3.0, 3.5, "values"),
        (True, 1, "structure"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "values"),
        (torch.tensor([True]), torch.tensor([False]), "values"),
        (torch.ones(3), torch.tensor([1.0, float("nan"), 1.0]), "non-finite"),
        (torch.tensor([float("inf")]), torch.tensor([float("-inf")]), "non-finite"),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([3.0, 1.0]), "values"),
        (torch.zeros(3), torch.full((3,), 1e-30), "values"),
    ],
)
def test_wrong(expected: Any, got: Any, wrong: str) -> None:
    assert kind(outcome(expected, got)) == wrong


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(3),
        torch.tensor([float("nan"), float("inf"), 1.0]),
        torch.empty(0, 3),
        torch.tensor(2.5),
        torch.tensor([1 + 2j]),
        (torch.ones(2), {"k": [torch.tensor([7])]}, 1.5, None),
    ],
)
def test_a_value_equals_itself(value: Any) -> None:
    for rule in (CALIBRATED, ALLCLOSE, LOOSE):
        assert kind(outcome(value, value, rule)) is None


def test_the_worst_element_is_named() -> None:
    x = torch.zeros(4, 5) + 1
    y = x.clone()
    y[2, 3] = 9
    y[1, 1] = 2
    mismatch = outcome(x, y).mismatch
    assert mismatch is not None
    assert mismatch.worst_index == (2, 3)
    assert mismatch.mismatched_elements == 2
    assert mismatch.max_abs_error == 8


def test_allclose_takes_the_requests_numbers() -> None:
    x = torch.ones(3)
    assert kind(outcome(x, x + 0.05, ToleranceRule(pb.Tolerance.PRESET_ALLCLOSE, 0.1, 0.0))) is None
    assert kind(outcome(x, x + 0.05, ToleranceRule(pb.Tolerance.PRESET_ALLCLOSE, 0.01, 0.0))) == "values"


def coarse(factor: float, *, rounding: float = 1e-3, seed: int = 1) -> str | None:
    """Return the kind of mismatch for errors that are `factor` times those of rounding to the allowed precision.

    A single element may be off by 16 times the largest of those.
    """
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(64, 64, generator=generator, dtype=torch.float64)
    off = torch.randn(64, 64, generator=generator, dtype=torch.float64)
    value = truth.float()
    expected = expect({"tensor": 0}, [value], [truth], (), [truth + rounding * off])
    got = (truth + factor * rounding * torch.randn(64, 64, generator=generator, dtype=torch.float64)).float()
    mismatch = compare(expected, {"tensor": 0}, [tree.describe(got)], [got], CALIBRATED).mismatch
    return None if mismatch is None else str(mismatch.kind)


@pytest.mark.parametrize("factor", [0.0, 1.0, 2.4, 4.0])
def test_arithmetic_of_the_allowed_precision_may_round_more_than_once(factor: float) -> None:
    assert coarse(factor) is None


@pytest.mark.parametrize("seed", range(8))
def test_coarser_arithmetic_than_allowed_is_told_by_all_errors_together(seed: int) -> None:
    assert coarse(8.0, seed=seed) == "precision"


def test_errors_beyond_any_rounding_are_wrong_values() -> None:
    assert coarse(64.0) == "values"


def test_noise_around_an_answer_of_nothing_but_zeros_is_allowed() -> None:
    """A difference of equal inputs, say: it has no typical size, so no error is large or small compared with it."""
    zeros, moved = torch.zeros(8), torch.full((8,), 1e-14, dtype=torch.float64)
    (leaf,) = expect({"tensor": 0}, [zeros], [zeros.double()], [[moved]], allowed=1e-3).leaves
    assert (leaf.noise, leaf.relative_noise, leaf.has_twin) == (1e-14, 0.0, True)


@pytest.mark.parametrize("odd", [float("inf"), float("nan")])
def test_a_difference_that_is_no_number_counts_as_none(odd: float) -> None:
    value, twin = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], dtype=torch.float64)
    moved = torch.tensor([1.0, odd], dtype=torch.float64)
    (leaf,) = expect({"tensor": 0}, [value], [twin], [[moved]]).leaves
    assert (leaf.noise, leaf.relative_noise, leaf.has_twin) == (0.0, 0.0, True)
