"""T05: a genuine tensor whose methods are overridden on the instance.

type(output) is torch.Tensor, but out.float, out.to, out.cpu and others compute the answer when the comparison calls them. The memory of
the output itself is never written.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        source = x.clone()
        for name in (
            "to",
            "float",
            "double",
            "cpu",
            "cuda",
            "clone",
            "detach",
            "contiguous",
            "numpy",
            "view",
            "reshape",
        ):
            setattr(out, name, lambda *args, _name=name, **kw: getattr(work(source), _name)(*args, **kw))
        return out
