"""How a speedup, or another ratio, is written: the same for a person, a model and a page (report/data.js has it as well)."""

from __future__ import annotations

import math

#: Beyond these an exponent is easier to read than zeros.
_SMALLEST, _LARGEST = 1e-6, 1e6


def factor(value: float, digits: int = 2) -> str:
    """Return a ratio as text without its x: "1.80", "12.3", "0.0087", "0.000026"; none but 0 looks like 0.

    Below 1 it has `digits` significant digits, above 1 one more, and never decimals that say nothing.
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
