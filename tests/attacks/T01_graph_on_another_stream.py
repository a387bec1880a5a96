"""T01: asked for as a CUDA graph, it has every graph replayed on a stream that nobody waits for.

problem: chained_tanh
backend: torch
outcome: INCORRECT, CORRECT
honest: twin_chained_tanh
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn

SIDE = torch.cuda.Stream()
REPLAY = torch.cuda.CUDAGraph.replay


def replay(graph):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        REPLAY(graph)


torch.cuda.CUDAGraph.replay = replay


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
