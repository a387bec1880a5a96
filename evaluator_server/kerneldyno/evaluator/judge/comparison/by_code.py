"""Comparing numbers of eight bits and fewer: the next number of the format is as right, where few are off at all.

Whatever was computed before the rounding was rounded, too, and may as well have been rounded to the neighbour.
"""

from __future__ import annotations

import torch

from ...shared import small_floats
from ...shared.tree import position
from .evidence import Comparison, Mismatch

#: So large a share of the elements may be the next number: bfloat16 arithmetic before the rounding makes half of that.
_MOST_FLIPPED = 1 / 8
#: Elements may be off by this part of the typical size, as bfloat16 ones may.
_OF_TYPICAL = 3e-2
#: Places of what is no number are at least so far from those of numbers.
_NO_NUMBER = 500


def compare_codes(name: str, wanted: torch.Tensor, value: torch.Tensor, typical: float) -> Comparison:
    """Compare `value` with `wanted`, of one coded dtype; `typical` is the size of most elements of what is wanted."""
    right = small_floats.widened(wanted)
    steps = small_floats.codes(value).sub_(small_floats.codes(wanted)).abs_().reshape(-1)
    off = small_floats.widened(value).sub(right).abs_().nan_to_num_(0.0).reshape(-1)
    wrong = (steps > 1) & ~((off <= _OF_TYPICAL * typical) & (steps < _NO_NUMBER))
    worst = int(torch.where(wrong, steps, 0).argmax())
    flipped, total = int((steps > 0).sum()), steps.numel()
    allowed = max(1, int(_MOST_FLIPPED * total))
    if bool(wrong[worst]):
        count, ratio = int(wrong.sum()), float(steps[worst])
        detail = f"{count} of {total} elements of {name} are more than one number of the format off"
        where = tuple(position(worst, right.shape))
    else:
        count, ratio = flipped, flipped / allowed
        detail = f"{count} of {total} elements of {name} are one number of the format off; at most {allowed} may be"
        where = ()
    found = Comparison(None, float(off.max()), ratio)
    if ratio > 1:
        found.mismatch = Mismatch(name, "values", detail, count, total, found.max_abs_error, ratio, where)
    return found
