"""T07: synchronising does nothing, and events are always done.

torch.cuda.synchronize, Stream.synchronize, Event.synchronize and Event.query no longer wait, the work is on a side stream: a host's clock
around the call stops before the work has begun. elapsed_time still waits, for it would fail otherwise.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn

elapsed, finish = torch.cuda.Event.elapsed_time, torch.cuda.Event.synchronize


def elapsed_time(self, other):
    finish(other)
    return elapsed(self, other)


torch.cuda.synchronize = lambda device=None: None
torch.cuda.Stream.synchronize = lambda self: None
torch.cuda.Event.synchronize = lambda self: None
torch.cuda.Event.query = lambda self: True
torch.cuda.Event.elapsed_time = elapsed_time


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = work(x)
        y.record_stream(self.side)
        return y
