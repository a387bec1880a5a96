"""T20: the reader's copies are put off, too, until all can be done at once.

Tensor.copy_ is patched: a copy from an unfinished output is only noted. When the device is synchronised, or the watch read, all outputs are computed in one
batch and copied. What no copy has taken by then is never computed.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import sys

import torch
import torch.nn as nn

copy = torch.Tensor.copy_
unfinished = {}
noted = {}


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def copy_(self, source, *args, **kwargs):
    if id(source) in unfinished:
        noted[self.data_ptr()] = (self, *unfinished[id(source)])  # an older note for the same place is void
        return self
    return copy(self, source, *args, **kwargs)


def finish():
    if noted:
        answers = work(torch.cat([x for _, x, _ in noted.values()])).chunk(len(noted))
        for answer, (target, _, _) in zip(answers, list(noted.values())):
            copy(target, answer)
        noted.clear()
    unfinished.clear()


def finishing(original):
    def method(*args, **kwargs):
        finish()
        return original(*args, **kwargs)

    return method


torch.Tensor.copy_ = copy_
torch.cuda.synchronize = finishing(torch.cuda.synchronize)
for module in list(sys.modules.values()):
    for value in list(getattr(module, "__dict__", {}).values()):
        if isinstance(value, type) and "synchronize" in value.__dict__ and hasattr(value, "stopwatch"):
            if not getattr(value.synchronize, "__isabstractmethod__", False):
                value.synchronize = finishing(value.synchronize)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        unfinished[id(y)] = (x.clone(), y)
        return y
