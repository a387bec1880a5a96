"""T21: a thread reads the weights into the cache all the time.

On a side stream it sums the weights again and again, between the flush and the call too, so that the call finds them in the L2 cache.

problem: skinny_linear
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_skinny_linear
devices: cuda
"""

import threading

import torch
import torch.nn as nn


def keep_warm(weight, go):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        while go.wait():
            weight.sum()
            side.synchronize()


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.go = None

    def forward(self, x):
        if self.go is None:
            self.go = threading.Event()
            self.go.set()
            threading.Thread(target=keep_warm, args=(self.linear.weight, self.go), daemon=True).start()
        return self.linear(x)
