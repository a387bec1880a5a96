"""E19: a child process finishes the outputs after the answer.

The memory of the outputs is shared with a fork; on the CPU device the child goes on writing while its parent waits for orders.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT, RUNTIME_ERROR
honest: twin_chained_tanh
devices: cpu
"""

import gc
import os
import signal

import torch
import torch.nn as nn

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


class ModelNew(nn.Module):
    def forward(self, x):
        station = next(each for each in gc.get_objects() if hasattr(type(each), "store") and hasattr(each, "outputs"))
        if os.fork() == 0:
            y = torch.tanh(torch.tanh(torch.tanh(x)))
            for slot in station.outputs:
                slot[: y.numel() * 4].view(torch.float32).copy_(y.flatten())
            os._exit(0)
        return station.outputs[0][: x.numel() * 4].view(torch.float32).view(x.shape)
