"""R15: a reference leaves work behind that slows others.

Threads that compute, and on a GPU a long queue of kernels after each call: a candidate is never blamed for it.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT, INFRASTRUCTURE_ERROR, REFERENCE_ERROR
devices: cpu, cuda
request: {}
"""

import threading

import torch
import torch.nn as nn


def burn():
    a = torch.rand(256, 256)
    while True:
        a = torch.tanh(a @ a)


for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()
stream = torch.cuda.Stream() if torch.cuda.is_available() else None


class Model(nn.Module):
    def forward(self, x):
        if stream is not None:
            with torch.cuda.stream(stream):
                big = torch.empty(1 << 26, device=x.device)
                for _ in range(400):
                    big.add_(1)
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
