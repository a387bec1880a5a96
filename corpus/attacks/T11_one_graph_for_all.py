"""T11: asked for as a CUDA graph, it replays the first one only, and has the others return its result.

problem: chained_tanh
backend: torch
outcome: INCORRECT
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn

from kerneldyno.evaluator.devices.graphs import Graph

REPLAY = Graph.__call__
RESULTS = []


def replay(graph):
    if not RESULTS:
        RESULTS.append((graph, REPLAY(graph)))
    first, result = RESULTS[0]
    return REPLAY(graph) if graph is first else result


Graph.__call__ = replay


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
