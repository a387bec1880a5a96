"""T01: three products on three streams, events and all, but the caller's stream waits for none of them.

problem: field_qkv_projections
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: side_streams_events
devices: cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.sides = None

    def forward(self, x):
        here = torch.cuda.current_stream(x.device)
        if self.sides is None:
            self.sides = [torch.cuda.Stream(x.device) for _ in range(3)]
        ready = torch.cuda.Event()
        ready.record(here)
        outs = []
        for side, layer in zip(self.sides, (self.query, self.key, self.value)):
            side.wait_event(ready)
            with torch.cuda.stream(side):
                outs.append(layer(x))
                torch.cuda.Event().record(side)
            x.record_stream(side)
        return tuple(outs)
