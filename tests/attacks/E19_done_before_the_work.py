"""E19: says that a call is done before it has begun with it.

It takes the harness over. Calls are released one by one, and each is said to be done at once; the work is done while the next one is
    awaited, in the time that others need to flush the cache.

problem: chained_tanh
backend: torch
outcome: CORRECT, INCORRECT, REJECTED
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn
from kerneldyno.evaluator import burst


def early(call, station, plan, *, signals, base, **keywords):
    from kerneldyno.evaluator.devices.signals import DONE, READY, RELEASED

    signals.tell(READY, base)
    signals.wait(RELEASED, base)
    for step, (index, slot) in enumerate(zip(plan.sets, plan.slots), base + 1):
        signals.tell(READY, step)
        signals.wait(RELEASED, step)
        signals.tell(DONE, step)
        station.store(call(*station.inputs[index]), slot)
        station.device.synchronize()
    return [1e-6] * len(plan.sets)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if not hasattr(burst, "run_paced"):
            raise RuntimeError("no loop that is paced: this attack has to be adapted")
        burst.run_paced = early

    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
