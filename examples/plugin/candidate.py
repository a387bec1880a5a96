"""A correct candidate for reference.py, for the backend "numpy"."""

import numpy as np
import torch


def pairwise(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    difference = a.numpy() - b.numpy()
    return torch.from_numpy(np.asarray(np.dot(difference, difference)))
