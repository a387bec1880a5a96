"""T16: at the first call of a burst all outputs are written into their slots.

The output slots are within reach of the timed loop's variables. All are filled at once, by one batched call for each distinct input; later calls
return the slot's own memory, whose copying onto itself changes nothing.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import sys

import torch
import torch.nn as nn


def timed_loop():
    """Return the local variables of the timed loop that has called, None outside of it."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("run_burst", "run_paced"):
            return frame.f_locals
        frame = frame.f_back
    return None


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        loop = timed_loop()
        if loop is None:
            return work(x)
        station, plan, step = loop["station"], loop["plan"], loop["step"]

        def place(slot):
            return station.outputs[slot][: x.nbytes].view(x.dtype).view(x.shape)

        if step == 0:
            last = dict(zip(plan.slots, plan.sets))
            answers = {index: work(station.inputs[index][0]) for index in set(last.values())}
            for slot, index in last.items():
                place(slot).copy_(answers[index])
        return place(plan.slots[step])
