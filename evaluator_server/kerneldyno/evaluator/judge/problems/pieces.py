"""Large tensors in pieces: work on all of one may take several times its memory, piece by piece it does not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: About how many elements a piece has.
_ELEMENTS = 1 << 26


def pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return views of a tensor, cut along its first dimension."""
    if tensor.numel() <= _ELEMENTS:
        return [tensor]
    rows = max(1, _ELEMENTS * tensor.shape[0] // tensor.numel())
    return [tensor[start : start + rows] for start in range(0, tensor.shape[0], rows)]
