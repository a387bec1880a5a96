"""torch.compile with CUDA graphs of its own; each call is a new step, and its output is cloned out of the graph's memory.

problem: field_two_layer_mlp
backend: torch
outcome: CORRECT
devices: cuda
request: {"timeout": 120}
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.compiled = torch.compile(self._run, mode="reduce-overhead")

    def _run(self, x):
        return x + self.down(F.silu(self.up(x)))

    def forward(self, x):
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            return self.compiled(x).clone()
