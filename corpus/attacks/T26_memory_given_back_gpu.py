"""T26: gigabytes given back when no call is to be expected, since the driver wipes them while the reference is timed.

While it does, everybody's memory is an eighth slower.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT, INFRASTRUCTURE_ERROR
honest: twin_chained_tanh
devices: cuda
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
        self.called = time.perf_counter()
        self.hoard = None
        threading.Thread(target=self.give_back, daemon=True).start()

    def give_back(self):
        while True:
            time.sleep(0.001)
            if time.perf_counter() - self.called > 0.003:
                self.hoard = None
                torch.cuda.empty_cache()
                try:
                    self.hoard = torch.empty(12 << 30, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError:
                    time.sleep(0.01)

    def forward(self, x):
        self.called = time.perf_counter()
        return work(x)
