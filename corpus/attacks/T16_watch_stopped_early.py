"""T16: the candidate stops the watch itself, before it works.

It finds the timed loop's stopwatch in its caller's variables, and replaces its `stop` by nothing after having called it once for this step.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import sys

import torch
import torch.nn as nn


def caller_with(*names):
    """Return the local variables of the nearest caller that has all of `names`."""
    frame = sys._getframe(2)
    while frame is not None:
        if all(name in frame.f_locals for name in names):
            return frame.f_locals
        frame = frame.f_back
    return None


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        plan = caller_with("watch", "step")
        if plan is not None:
            watch = plan["watch"]
            real = getattr(watch, "real_stop", watch.stop)
            watch.real_stop = real
            real(plan["step"])
            watch.stop = lambda step: None
        return work(x)
