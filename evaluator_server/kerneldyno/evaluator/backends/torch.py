"""Plain PyTorch candidates: compositions, `torch.compile`, or anything else that needs no kernel of its own."""

from __future__ import annotations

from .base import Backend


class TorchBackend(Backend):
    """PyTorch. It needs no preparation and counts nothing."""

    name = "torch"


BACKEND = TorchBackend()
