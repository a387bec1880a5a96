"""Setting torch's generators, for as little as it can cost: it happens before every call of reference and candidate."""

from __future__ import annotations

import torch


def seed(device: torch.device, value: int) -> None:
    """Set the generators that code on `device` draws from: the host's, and on a GPU all GPUs'.

    `torch.manual_seed` does the same for every kind of accelerator that torch knows. For each that is not in use it writes
    down a stack trace, in case it ever will be: a millisecond all together, which is longer than most calls take.
    """
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        # There are none before the first use of CUDA, when there is nothing to set.
        for generator in torch.cuda.default_generators:
            generator.manual_seed(value)
