"""Durations and sizes for people, with a suitable unit."""

from __future__ import annotations


def seconds(value: float) -> str:
    """Return a duration with a suitable unit."""
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def size(count: int) -> str:
    """Return a number of bytes with a suitable unit."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {unit}"
    return f"{count} bytes"
