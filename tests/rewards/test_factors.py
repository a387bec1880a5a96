"""Tests of how a speedup is written: the same way for a person, a model and a page."""

from __future__ import annotations

import math

import pytest

from kerneldyno.rewards.factors import factor

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("value", "short", "exact"),
    [
        (1.0, "1.00", "1.000"),
        (1.0849, "1.08", "1.085"),
        (12.345, "12.3", "12.35"),
        (999.96, "1000", "1000.0"),
        (54321.6, "54322", "54322"),
        (1.5e308, "1.50e+308", "1.500e+308"),
        (0.5, "0.50", "0.500"),
        (0.0999, "0.100", "0.0999"),
        (0.0087, "0.0087", "0.00870"),
        (2.6e-05, "0.000026", "0.0000260"),
        (3e-9, "3.0e-09", "3.00e-09"),
        (0.0, "0", "0"),
        (-1.5, "-1.5", "-1.5"),
        (math.inf, "inf", "inf"),
        (math.nan, "nan", "nan"),
    ],
)
def test_factor(value: float, short: str, exact: str) -> None:
    assert (factor(value), factor(value, 3)) == (short, exact)


def test_no_positive_factor_looks_like_nothing() -> None:
    for exponent in range(-30, 30):
        for mantissa in (1.0, 3.3333, 9.99999):
            value = mantissa * 10.0**exponent
            assert float(factor(value)) == pytest.approx(value, rel=0.06)
            assert float(factor(value, 3)) == pytest.approx(value, rel=0.006)
