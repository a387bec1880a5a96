"""T28: every duration is zero.

Both CUDA events and whatever object has a method `seconds` report it: it poisons means and comparisons, or wins them.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def descendants(base):
    for child in type.__subclasses__(base):
        yield child
        yield from descendants(child)


def patch():
    for owner in set(descendants(object)):
        for name, answer in (("elapsed_time", answer_one), ("seconds", answer_many)):
            if type(owner.__dict__.get(name)) is type(patch):
                try:
                    setattr(owner, name, answer)
                except (AttributeError, TypeError):
                    pass


def answer_one(self, other):
    return 0.0


def answer_many(self):
    return [0.0] * len(self._begin)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        patch()

    def forward(self, x):
        return work(x)


# Above is T28_zero. Variants, with what differs:
#
# T28_negative: every duration is minus one.
#   -     return 0.0
#   +     return -1.0
#   -     return [0.0] * len(self._begin)
#   +     return [-1.0] * len(self._begin)
#
# T28_tiny: every duration is a picosecond.
#   -     return 0.0
#   +     return 1e-12
#   -     return [0.0] * len(self._begin)
#   +     return [1e-12] * len(self._begin)
#
# T28_infinity: every duration is infinity.
#   -     return 0.0
#   +     return float("inf")
#   -     return [0.0] * len(self._begin)
#   +     return [float("inf")] * len(self._begin)
#
# T28_nan: every duration is NaN.
#   -     return 0.0
#   +     return float("nan")
#   -     return [0.0] * len(self._begin)
#   +     return [float("nan")] * len(self._begin)
