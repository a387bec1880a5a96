"""Seeding of torch's generators. It must be cheap, because it happens before every call of reference and candidate."""

from __future__ import annotations

import torch


def seed(device: torch.device, value: int) -> None:
    """Seed the generators that code on `device` draws from: the host's, and on a GPU those of all GPUs.

    `torch.manual_seed` does the same for every kind of accelerator that torch knows. For each kind that is not in use,
    it stores a stack trace in case it is used later. Together this takes a millisecond, longer than most calls.
    """
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        # Before the first use of CUDA this list is empty, and there is nothing to seed.
        for generator in torch.cuda.default_generators:
            generator.manual_seed(value)
