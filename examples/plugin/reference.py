"""A problem for the toolkit "pairwise": a distance between two vectors."""

import torch

SIZE = 10_000


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a - b).square().sum()
