"""How far an element may be off: the bounds that each preset of the message Tolerance sets for an output."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...shared.enums import Preset
from ...shared.spec import ToleranceRule

#: Relative error allowed by output dtype: about 8 units in the last place of half precision. For float32 it is well
#: above the rounding of long reductions, but below the effect of TF32 products on zero-mean data (3e-4 and more).
_RTOL = {
    torch.float64: 1e-7,
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-7,
    torch.complex64: 1e-4,
    torch.complex32: 4e-3,
}
#: The error of an element may be this many times the noise.
NOISE_FACTOR = 8.0
#: Both tolerances of PRESET_LOOSE, and the defaults of PRESET_MATCHED_SHARE.
_LOOSE = 1e-2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowed errors of an output's elements."""

    absolute: float
    relative: float
    #: True if an error may be as large as the larger of the two; otherwise it may be as large as their sum.
    either: bool = False
    #: Share of the elements that must be within these bounds.
    share: float = 1.0

    def allowed(self, sizes: torch.Tensor) -> torch.Tensor:
        """Return the allowed error of each element from its expected size. The sizes may be overwritten."""
        relative = sizes.mul_(self.relative)
        return relative.clamp_min_(self.absolute) if self.either else relative.add_(self.absolute)


def relative_tolerance(dtype: torch.dtype) -> float:
    """Return the relative error that the calibrated rule allows for outputs of `dtype`."""
    return _RTOL.get(dtype, 1e-4)


def bounds(rule: ToleranceRule, dtype: torch.dtype, typical: float, noise: float) -> Bounds:
    """Return the bounds for an output.

    Args:
        rule: The rule.
        dtype: The output's dtype. Integers must be equal.
        typical: Size of most of its elements.
        noise: The noise of the reference's own answer.
    """
    share = rule.share if rule.preset == Preset.MATCHED_SHARE else 1.0
    if not (dtype.is_floating_point or dtype.is_complex):
        return Bounds(0.0, 0.0, share=share)
    match rule.preset:
        case Preset.LOOSE:
            return Bounds(_LOOSE, _LOOSE)
        case Preset.ALLCLOSE:
            fine = dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
            return Bounds(*_given(rule, 1e-4 if fine else 1e-2))
        case Preset.MATCHED_SHARE:
            return Bounds(*_given(rule, _LOOSE), either=True, share=share)
    relative = relative_tolerance(dtype)
    return Bounds(relative * typical + NOISE_FACTOR * noise, relative)


def _given(rule: ToleranceRule, default: float) -> tuple[float, float]:
    return default if rule.atol is None else rule.atol, default if rule.rtol is None else rule.rtol
