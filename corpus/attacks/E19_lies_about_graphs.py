"""E19: asked for as a CUDA graph, it says that it has none, and replays them all the same.

A burst of nothing then makes copies of inputs that its bursts do without.

problem: chained_tanh
backend: torch
outcome: CORRECT
honest: graph_mode_chain
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn

from kerneldyno.evaluator.runner.harness import _Harness

CAPTURE = _Harness.do_capture


def capture(harness, order):
    CAPTURE(harness, order)
    return False


_Harness.do_capture = capture


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
