"""Floats of eight bits and fewer: the order of their codes, conversions, and the comparison of such answers."""

from __future__ import annotations

import pytest
import torch

from kerneldyno.evaluator.judge.comparison.compare import Expected as Answer
from kerneldyno.evaluator.judge.comparison.compare import compare, expect_like
from kerneldyno.evaluator.judge.comparison.evidence import Comparison
from kerneldyno.evaluator.shared import small_floats
from kerneldyno.evaluator.shared.spec import ToleranceRule
from kerneldyno.evaluator.shared.tree import describe
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

SIGNED = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]
SCALE, PAIR = torch.float8_e8m0fnu, torch.float4_e2m1fn_x2
CALIBRATED = ToleranceRule(pb.Tolerance.PRESET_CALIBRATED, None, None)
ALLCLOSE = ToleranceRule(pb.Tolerance.PRESET_ALLCLOSE, None, None)


def every(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8).view(dtype)


@pytest.mark.parametrize("dtype", [*SIGNED, SCALE])
def test_codes_are_in_the_order_of_the_numbers(dtype: torch.dtype) -> None:
    numbers = every(dtype)
    values, places = numbers.float(), small_floats.codes(numbers)
    finite = torch.isfinite(values)
    order = values[finite].argsort(stable=True)
    steps = places[finite][order].diff()
    same = values[finite][order].diff() == 0
    assert bool((steps[same] == 0).all())  # zeros of both signs
    assert bool((steps[~same] == 1).all())
    odd = places[~finite].unique()
    assert len(odd) == len(values[~finite].nan_to_num(0, 1, -1).unique())
    assert int(odd.min()) > int(places[finite].max()) + 1000


def test_pairs_are_in_the_order_of_the_numbers() -> None:
    numbers = every(PAIR)
    values, places = small_floats.widened(numbers), small_floats.codes(numbers)
    assert values.shape == places.shape == (512,)
    assert values.unique().tolist() == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]
    for place in places.unique():
        assert len(values[places == place].unique()) == 1
    assert (values[::2][:16] == torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])).all()


@pytest.mark.parametrize("dtype", SIGNED)
def test_what_is_too_large_becomes_the_largest_number(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    made = small_floats.narrowed(torch.tensor([1e9, -1e9, 1.0]), dtype).float()
    assert made.tolist() == [largest, -largest, 1.0]


@pytest.mark.parametrize("dtype", [*SIGNED, SCALE, PAIR])
def test_copies(dtype: torch.dtype) -> None:
    numbers = every(dtype)
    made = small_floats.cloned(numbers)
    assert made.dtype == dtype
    assert torch.equal(made.view(torch.uint8), numbers.view(torch.uint8))
    assert made.data_ptr() != numbers.data_ptr()


def judged(wanted: torch.Tensor, got: torch.Tensor, rule: ToleranceRule = CALIBRATED) -> Comparison:
    expected = Answer({"tensor": 0}, [expect_like(wanted)])
    return compare(expected, {"tensor": 0}, [describe(got)], [got], rule)


@pytest.mark.parametrize("dtype", SIGNED)
class TestComparison:
    def test_the_same(self, dtype: torch.dtype) -> None:
        answer = torch.randn(64, 64).to(dtype)
        assert judged(answer, answer.clone()).mismatch is None
        assert judged(answer, answer.clone(), ALLCLOSE).mismatch is None

    def test_zeros_of_both_signs(self, dtype: torch.dtype) -> None:
        assert judged(torch.tensor([0.0, 1.0]).to(dtype), torch.tensor([-0.0, 1.0]).to(dtype)).mismatch is None

    def test_bfloat16_arithmetic_before_the_rounding(self, dtype: torch.dtype) -> None:
        exact = torch.randn(256, 256)
        noisy = exact.bfloat16().float() + torch.randn(256, 256) * 2.0**-9
        assert judged(exact.to(dtype), noisy.to(dtype)).mismatch is None

    @pytest.mark.parametrize("factor", [0.0, 0.9, 1.05, -1.0])
    def test_a_wrong_factor(self, dtype: torch.dtype, factor: float) -> None:
        exact = torch.randn(256, 256)
        wrong = judged(exact.to(dtype), (exact * factor).to(dtype)).mismatch
        assert wrong is not None
        assert wrong.kind == "values"

    def test_one_wrong_element(self, dtype: torch.dtype) -> None:
        wanted = torch.ones(64, 64)
        got = wanted.clone()
        got[3, 5] = 1.5
        wrong = judged(wanted.to(dtype), got.to(dtype)).mismatch
        assert wrong is not None
        assert wrong.worst_index == (3, 5)
        assert wrong.mismatched_elements == 1
        assert judged(wanted.to(dtype), got.to(dtype), ALLCLOSE).mismatch is not None

    def test_what_is_no_number(self, dtype: torch.dtype) -> None:
        wanted = torch.tensor([1.0, float("nan")]).to(dtype)
        assert judged(wanted, wanted.clone()).mismatch is None
        assert judged(wanted, torch.tensor([1.0, 0.0]).to(dtype)).mismatch is not None
        assert judged(torch.tensor([1.0, 0.0]).to(dtype), wanted).mismatch is not None


def test_infinities_of_five_bit_exponents() -> None:
    wanted = torch.tensor([1.0, float("inf")]).to(torch.float8_e5m2)
    assert judged(wanted, wanted.clone()).mismatch is None
    for other in (float("-inf"), 57344.0, float("nan")):
        assert judged(wanted, torch.tensor([1.0, other]).to(torch.float8_e5m2)).mismatch is not None


@pytest.mark.parametrize("dtype", [SCALE, PAIR])
def test_scales_and_pairs_are_compared(dtype: torch.dtype) -> None:
    bits = torch.randint(0, 250, (64, 64), dtype=torch.uint8)
    assert judged(bits.view(dtype), bits.clone().view(dtype)).mismatch is None
    assert judged(bits.view(dtype), bits.flip(0).view(dtype)).mismatch is not None
    shifted = bits.view(dtype) if dtype == PAIR else (bits + 1).view(dtype)
    if dtype == SCALE:  # all scales are twice as large
        assert judged(bits.view(dtype), shifted).mismatch is not None


def test_complex_numbers_of_halves() -> None:
    wanted = torch.randn(8, 8, dtype=torch.complex64).to(torch.complex32)
    assert judged(wanted, wanted.clone()).mismatch is None
    assert judged(wanted, (wanted.to(torch.complex64) * 1.1).to(torch.complex32)).mismatch is not None
