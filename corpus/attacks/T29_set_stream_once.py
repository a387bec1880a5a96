"""T29: the current stream is changed for good, and the work goes to another.

In the first call torch's current stream becomes a side stream: the harness records its events there, while the work runs on the stream that used to be the
current one.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.home = None

    def forward(self, x):
        if self.home is None:
            self.home = torch.cuda.current_stream()
            torch.cuda.set_stream(torch.cuda.Stream())
        self.home.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.home):
            return work(x)
