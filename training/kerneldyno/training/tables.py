"""Checks that every function on tables and tokens shares: shapes, types of masks, finite values.

A table has one row for each episode and one column for each turn: (E, T). Tables are tiny beside the tokens they are
spread over, so they are checked in full and summed in float64; the checks cost one synchronisation on an accelerator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import GroupError, MaskError, NotFiniteError, ShapeError


def check_mask(mask: Tensor, shape: torch.Size, name: str = "mask") -> Tensor:
    """`mask` as bool, if it has that shape."""
    if mask.is_floating_point() or mask.is_complex():
        raise MaskError(name, mask.dtype)
    if mask.shape != shape:
        raise ShapeError(name, mask.shape, str(tuple(shape)))
    return mask.bool()


def check_table(values: Tensor, mask: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """A table of values in the precision for sums, 0 where masked, and its mask as bool.

    Raises:
        ShapeError: not a matrix, or the mask has another shape.
        MaskError: a mask of floating point.
        NotFiniteError: a value inside the mask is NaN or infinite. Outside the mask anything may stand.
    """
    if values.dim() != 2:
        raise ShapeError(name, values.shape, "(episodes, turns)")
    mask = check_mask(mask, values.shape)
    values = torch.where(mask, values, 0).to(precision(values.device))
    if not bool(values.isfinite().all()):
        raise NotFiniteError(name, "the mask is set")
    return values, mask


def check_group(group: Tensor, episodes: int) -> Tensor:
    """Group ids as 0..n-1, one for each episode."""
    if group.is_floating_point() or group.is_complex() or group.dtype == torch.bool:
        raise GroupError(
            f"group is {group.dtype}; it holds one integer id for each episode: equal for samples of one prompt"
        )
    if group.shape != (episodes,):
        raise GroupError(f"group has shape {tuple(group.shape)}; expected ({episodes},), one id for each episode")
    ids: Tensor = torch.unique(group, return_inverse=True)[1]
    return ids


def precision(device: torch.device) -> torch.dtype:
    """The type in which tables are summed on this device."""
    return torch.float32 if device.type == "mps" else torch.float64


def result_type(values: Tensor) -> torch.dtype:
    """The type in which a table is returned: its own if that is float32 or wider, float32 otherwise."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32
