"""R10: a reference never ends.

It is ended at the limit of an order; meanwhile other lanes go on.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: REFERENCE_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


def hang():
    while True:
        pass


class Model(nn.Module):
    def forward(self, x):
        hang()
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# Above is R10_hangs. Variants, with what differs:
#
# R10_hangs_in_inputs: in get_inputs.
#   -         hang()
#   -         return torch.nn.functional.silu(x)
#   +         return torch.nn.functional.silu(x)
#   -     return [torch.randn(64, 256)]
#   +     hang()
#
# R10_hangs_when_loaded: when its source is executed.
#   -     while True:
#   -         pass
#   +     while True:
#   +         pass
#   +
#   +
#   + hang()
