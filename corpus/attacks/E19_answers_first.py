"""E19: answers for a burst at once and works afterwards.

It takes the harness over: a burst's answer, with plausible times, leaves before the work has begun; a thread then works and
    fills the slots while the judge is about to look.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
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


import threading

from kerneldyno.evaluator.devices import timed_loops


def take_over():
    kind = type(harness())
    honest = kind.do_burst

    def do_burst(self, order):
        count = max(len(each) for each in order.values() if isinstance(each, list))
        begun = threading.Event()

        def work():
            begun.set()
            with torch.no_grad():
                honest(self, order)

        threading.Thread(target=work, daemon=True).start()
        begun.wait()
        return [1e-5] * count

    kind.do_burst = do_burst


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        take_over()

    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
