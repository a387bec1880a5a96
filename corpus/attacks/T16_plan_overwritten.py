"""T16: the burst's plan is read, and outputs that will be overwritten are not computed.

The plan lies in the local variables of the timed loop: which slot each call's output goes to. A call whose slot is written again later
in the burst cannot be checked, so it does nothing.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
request: {"num_perf_trials": 200}
"""

import sys

import torch
import torch.nn as nn


def timed_loop():
    """Return the local variables of the timed loop that has called, None outside of it."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("run_burst", "run_paced"):
            return frame.f_locals
        frame = frame.f_back
    return None


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, x):
        loop = timed_loop()
        if loop is not None and self.out is not None:
            step, slots = loop["step"], loop["plan"].slots
            if slots[step] in slots[step + 1 :]:
                return self.out
        self.out = work(x)
        return self.out
