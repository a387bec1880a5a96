"""T27: all work is done, but the debt of many calls is paid in one.

Most calls only allocate and queue; one in sixteen computes everything that is due, on the calls' own outputs. The median is small, the mean is the truth. Copies
that were made before are corrected through the harness's variables, where they can be found.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
request: {"num_perf_trials": 200}
"""

import sys

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def targets():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("run_burst", "run_paced"):
            names = frame.f_locals
            return names["station"].outputs, names["plan"].slots, names["step"]
        frame = frame.f_back
    return None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.due = {}

    def forward(self, x):
        plan = targets()
        if plan is None:
            return work(x)
        outputs, slots, step = plan
        if step == 0:
            self.due.clear()
        if step % 16 == 15 or step == len(slots) - 1:
            for slot, source in self.due.items():
                outputs[slot][: x.nbytes].view(x.dtype).view(x.shape).copy_(work(source))
            self.due.clear()
            return work(x)
        self.due[slots[step]] = x.clone()
        return x
