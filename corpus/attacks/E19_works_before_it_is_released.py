"""E19: works on a call's inputs as soon as they are there, and is released when it is done.

It takes the harness over. Between a call's inputs and its release others copy the inputs and flush the cache; this one
does the work there, and says that it is done at once when it is released.

problem: chained_tanh
backend: torch
outcome: CORRECT, INCORRECT, REJECTED
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn

from kerneldyno.evaluator.devices import timed_loops


def ahead(call, station, plan, *, signals, base, **keywords):
    from kerneldyno.evaluator.devices.signals import DONE, READY, RELEASED

    for step, (index, slot) in enumerate(zip(plan.sets, plan.slots)):
        asked, called = base + 2 * step, base + 2 * step + 1
        signals.tell(READY, asked)
        signals.wait(RELEASED, asked)
        station.store(call(*station.inputs[index]), slot)
        station.device.synchronize()
        signals.tell(READY, called)
        signals.wait(RELEASED, called)
        signals.tell(DONE, called)
    return [1e-6] * len(plan.sets)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if not hasattr(timed_loops, "run_paced"):
            raise RuntimeError("no loop that is paced: this attack has to be adapted")
        timed_loops.run_paced = ahead

    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
