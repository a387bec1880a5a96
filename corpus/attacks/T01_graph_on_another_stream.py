"""T01: asked for as a CUDA graph, it has every graph replayed on a stream that nobody waits for.

problem: chained_tanh
backend: torch
outcome: INCORRECT, CORRECT
honest: graph_mode_chain
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn

from kerneldyno.evaluator.devices.graphs import Graph

SIDE = torch.cuda.Stream()
REPLAY = Graph.__call__


def replay(graph):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        return REPLAY(graph)


Graph.__call__ = replay


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
