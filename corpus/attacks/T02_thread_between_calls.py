"""T02: a thread computes in the pauses between calls what the last calls asked for.

Calls only leave a note; the thread works whenever the caller is not inside the model, and a stale buffer is returned meanwhile.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import threading
import time

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = False
        self.note = None
        self.out = None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            time.sleep(0)
            if self.note is not None and not self.inside:
                x, self.note = self.note, None
                self.out.copy_(work(x))

    def forward(self, x):
        self.inside = True
        if self.out is None:
            self.out = work(x)
        else:
            self.note = x
        self.inside = False
        return self.out
