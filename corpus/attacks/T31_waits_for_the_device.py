"""T31: waits for the device, so that neither side is queued ahead.

Beside a reference of many launches that costs the candidate a little and the reference a lot.

problem: chained_tanh
backend: torch
outcome: CORRECT
honest: twin_chained_tanh
devices: cuda
finding: T31
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(torch.tanh(torch.tanh(x)))
        y[0, 0].item()
        return y
