"""T26: kernels queued by the candidate keep the GPU busy while the reference is timed.

After the last call of a burst a long queue of memory traffic is left on a side stream, and a patched torch.cuda.synchronize waits only for the caller's
stream: the burst ends in time, the process may be stopped, but its queue is still there when the reference's turn comes.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import sys

import torch
import torch.nn as nn

torch.cuda.synchronize = lambda device=None: torch.cuda.current_stream().synchronize()


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def last_of_burst():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("run_burst", "run_paced"):
            return frame.f_locals["step"] == len(frame.f_locals["plan"].slots) - 1
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.load = torch.ones(64 << 20, device="cuda")

    def forward(self, x):
        y = work(x)
        if last_of_burst():
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                for _ in range(500):
                    self.load.mul_(1.0)
        return y
