"""T20: outputs are handed out empty, and only the last one is ever computed.

For callers that look only at what the last call of a loop returned: the work is done when somebody synchronises, by a patched
torch.cuda.synchronize, for the newest output alone.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn

newest = []
synchronize = torch.cuda.synchronize


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def finish(*args, **kwargs):
    if newest:
        x, y = newest.pop()
        y.copy_(work(x))
    if torch.cuda.is_available():
        synchronize(*args, **kwargs)


torch.cuda.synchronize = finish


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        newest[:] = [(x, y)]
        return y
