"""Describe the roofline in words, for people and for models."""

from __future__ import annotations

import math

from kerneldyno.v1.evaluation_pb2 import Roofline


def words(roofline: Roofline) -> str:
    """Return "43% of the roof (memory: 12.6 MB at 4.1 TB/s take 3.1 us)", or "" if there is no roofline."""
    if roofline.bound == Roofline.BOUND_MEMORY:
        bound, work, unit, rate = "memory", float(roofline.bytes), "B", roofline.bytes_per_second
    elif roofline.bound == Roofline.BOUND_COMPUTE:
        bound, work, unit, rate = "compute", float(roofline.flops), "FLOP", roofline.flops_per_second
    else:
        return ""
    if not all(0 < value < math.inf for value in (work, rate, roofline.least_seconds, roofline.share)):
        return ""
    share = f"{roofline.share:.0%}" if roofline.share >= 0.095 else f"{100 * roofline.share:.2g}%"
    took = scaled(roofline.least_seconds, "s")
    return f"{share} of the roof ({bound}: {scaled(work, unit)} at {scaled(rate, unit)}/s take {took})"


def scaled(value: float, unit: str) -> str:
    """Return a quantity with a suitable unit prefix: "4.1 TB"."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value * 1e9:.3g} n{unit}"
