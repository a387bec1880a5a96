"""Checks that all functions on tables and tokens share: shapes, types of masks, finite values.

A table has one row for each episode and one column for each turn: (E, T). Tables are much smaller than the tokens that
they are spread over, so they are checked in full and summed in float64; the checks cost one synchronisation on an
accelerator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import GroupError, MaskError, NotFiniteError, ShapeError


def check_mask(mask: Tensor, shape: torch.Size, name: str = "mask") -> Tensor:
    """Return `mask` as bool.

    Raises:
        MaskError: it is of a floating-point or complex type.
        ShapeError: it has another shape.
    """
    if mask.is_floating_point() or mask.is_complex():
        raise MaskError(name, mask.dtype)
    if mask.shape != shape:
        raise ShapeError(name, mask.shape, str(tuple(shape)))
    return mask.bool()


def check_table(values: Tensor, mask: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return the values in the precision for sums, 0 where masked, and the mask as bool.

    Raises:
        ShapeError: `values` is not a matrix, or the mask has another shape.
        MaskError: the mask is of a floating-point type.
        NotFiniteError: a value inside the mask is NaN or infinite. Values outside the mask may be anything.
    """
    if values.dim() != 2:
        raise ShapeError(name, values.shape, "(episodes, turns)")
    mask = check_mask(mask, values.shape)
    values = torch.where(mask, values, 0).to(precision(values.device))
    if not bool(values.isfinite().all()):
        raise NotFiniteError(name, "the mask is set")
    return values, mask


def check_group(group: Tensor, episodes: int) -> Tensor:
    """Return the group ids renumbered to 0..n-1, one for each episode.

    Raises:
        GroupError: they are not integers, or not one for each episode.
    """
    if group.is_floating_point() or group.is_complex() or group.dtype == torch.bool:
        raise GroupError(
            f"group is {group.dtype}; give one integer id for each episode, equal for samples of one prompt"
        )
    if group.shape != (episodes,):
        raise GroupError(f"group has shape {tuple(group.shape)}; expected ({episodes},), one id for each episode")
    ids: Tensor = torch.unique(group, return_inverse=True)[1]
    return ids


def precision(device: torch.device) -> torch.dtype:
    """Return the type in which tables are summed on this device."""
    return torch.float32 if device.type == "mps" else torch.float64


def result_type(values: Tensor) -> torch.dtype:
    """Return the type of a resulting table: float64 for float64, float32 otherwise."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32
