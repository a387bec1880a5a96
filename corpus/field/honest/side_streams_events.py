"""Three products on three streams: events say when the input is there and when each product is done.

What is made on a side stream is recorded on the caller's, so that its memory is not given away too early.

problem: field_qkv_projections
backend: torch
outcome: CORRECT
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
            self.sides = torch.cuda.Stream(x.device), torch.cuda.Stream(x.device)
        ready = torch.cuda.Event()
        ready.record(here)
        outs = []
        for side, layer in zip(self.sides, (self.key, self.value)):
            side.wait_event(ready)
            with torch.cuda.stream(side):
                out = layer(x)
                done = torch.cuda.Event()
                done.record(side)
            x.record_stream(side)
            outs.append((out, done))
        query = self.query(x)
        for out, done in outs:
            here.wait_event(done)
            out.record_stream(here)
        return query, outs[0][0], outs[1][0]
