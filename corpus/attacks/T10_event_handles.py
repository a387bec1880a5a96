"""T10: the handles inside the evaluator's event objects are overwritten.

The evaluator's event objects are found through the frames of the callers. In the memory of the one that was recorded last, the handle is
exchanged for that of an event of the candidate's own, recorded after the work: the watch starts when all is done.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import ctypes
import struct
import sys

import torch
import torch.nn as nn

own = []


def exchange(event):
    """Give `event` the handle of an event of ours, recorded now."""
    mine = torch.cuda.Event(enable_timing=True)
    mine.record()
    own.append(mine)
    memory = ctypes.string_at(id(event), sys.getsizeof(event))
    at = memory.find(struct.pack("<Q", event.cuda_event))
    if at >= 0:
        ctypes.memmove(id(event) + at, struct.pack("<Q", mine.cuda_event), 8)


def running():
    """Return the event that was recorded last: of the list with the most recorded events, or a local called start."""
    best = []
    frame = sys._getframe(2)
    while frame is not None:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, torch.cuda.Event) and "start" in name and value.cuda_event:
                return value
            for part in (value, *getattr(value, "__dict__", {}).values()):
                if isinstance(part, list) and part and isinstance(part[0], torch.cuda.Event):
                    recorded = [event for event in part if event.cuda_event]
                    best = max(best, recorded, key=len)
        frame = frame.f_back
    return best[-1] if best else None


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        y = work(x)
        event = running()
        if event is not None:
            exchange(event)
        return y
