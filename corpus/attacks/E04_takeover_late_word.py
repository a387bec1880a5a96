"""E04: takes its harness over and has the device be late to say that a burst is over, so that all last equally long.

As takeover_level_bursts, but on the device: a kernel that only waits is queued before the word that ends a burst is written,
longer for shorter bursts. The device times that are reported are a tenth of the truth.

problem: chained_tanh
backend: torch
outcome: CORRECT, REJECTED
honest: twin_chained_tanh
devices: cuda
"""

import sys

import torch
import torch.nn as nn

#: The longest burst that there may be, and about what a call and the copy of its output take, in seconds.
LONGEST, CALL = 40, 160e-6


def harness():
    """The object that serves the judge: whatever among our callers has methods called do_*."""
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if hasattr(type(value), "do_burst"):
                return value
        frame = frame.f_back
    raise RuntimeError("no harness among the callers: this attack has to be adapted")


def take_over():
    server = harness()
    gate = next(type(value) for value in vars(server).values() if hasattr(value, "finish"))
    honest_burst, honest_finish = type(server).do_burst, gate.finish
    hertz = 1e3 * getattr(torch.cuda.get_device_properties(0), "clock_rate", 1_980_000)
    calls = [0]

    def do_burst(self, order):
        calls[0] = len(order["sets"])
        return [each / 10 for each in honest_burst(self, order)]

    def finish(self, value):
        torch.cuda._sleep(int((LONGEST - calls[0]) * CALL * hertz) + 1)
        honest_finish(self, value)

    type(server).do_burst, gate.finish = do_burst, finish


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        take_over()

    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
