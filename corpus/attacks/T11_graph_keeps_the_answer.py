"""T11: asked for as a CUDA graph, it has the answer of the call before captured instead of the work.

Its replay does not do what the call does, so it is timed as usual.

problem: chained_tanh
backend: torch
outcome: INCORRECT, CORRECT
honest: graph_mode_chain
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            return self.kept.clone()
        self.kept = torch.tanh(torch.tanh(torch.tanh(x)))
        return self.kept
