"""Format speedups and other ratios, the same for people, models and pages (report/data.js has a copy)."""

from __future__ import annotations

import math

#: Outside these bounds an exponent is easier to read than zeros.
_SMALLEST, _LARGEST = 1e-6, 1e6


def factor(value: float, digits: int = 2) -> str:
    """Return a ratio as text without its x: "1.80", "12.3", "0.0087", "0.000026". Only 0 is shown as 0.

    It has `digits` significant digits below 1 and one more above 1, and no decimals beyond them.
    """
    if not 0 < value < math.inf:
        return f"{value:g}"
    if value < _SMALLEST:
        return f"{value:.{digits - 1}e}"
    if value >= _LARGEST:
        return f"{value:.{digits}e}"
    power = math.floor(math.log10(value))
    decimals = digits - 1 - power if power < 0 else max(digits - power, 0)
    return f"{value:.{decimals}f}"
