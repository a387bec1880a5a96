"""Large tensors in pieces. Work on a whole tensor may take several times its memory; work on pieces does not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: Approximate number of elements in a piece.
_ELEMENTS = 1 << 26


def pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return views of a tensor, cut along its first dimension."""
    if tensor.numel() <= _ELEMENTS:
        return [tensor]
    rows = max(1, _ELEMENTS * tensor.shape[0] // tensor.numel())
    return [tensor[start : start + rows] for start in range(0, tensor.shape[0], rows)]
