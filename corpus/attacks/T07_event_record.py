"""T07: every event is recorded on an idle stream.

Event.record ignores where it was asked to record: on a stream without work, start and end are microseconds apart.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn

idle = torch.cuda.Stream()
record = torch.cuda.Event.record
torch.cuda.Event.record = lambda self, stream=None: record(self, idle)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        return work(x)
