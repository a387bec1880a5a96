"""E03: takes its harness over and describes outputs that it has not made.

Shapes of gigabytes, negative sizes, unknown dtypes and overlapping strides, where the judge sets up views of its own memory.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
request: {"run_performance": false}
"""

import sys

import torch
import torch.nn as nn


def harness():
    """The object that serves the judge: whatever among our callers has methods called do_*."""
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if hasattr(type(value), "do_burst"):
                return value
        frame = frame.f_back
    raise RuntimeError("no harness among the callers: this attack has to be adapted")


from kerneldyno.evaluator.shared import tree

LIES = [
    ["float32", [1 << 40], [1], False],
    ["float32", [-4, 4], [4, 1], False],
    ["float32", [1 << 47, 1 << 47], [1, 1], False],
    ["os.system", [4], [1], False],
    ["complex128", [384, 1024], [0, 0], False],
]


class Lie:
    def to_json(self):
        self.turn = (getattr(self, "turn", -1) + 1) % len(LIES)
        return LIES[self.turn]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        kind = type(harness())
        kind.do_call = lambda self, order: {"structure": {"tensor": 0}, "specs": LIES, "launches": True}

    def forward(self, x):
        return x
