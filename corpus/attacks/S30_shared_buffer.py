"""S30: one output buffer, returned by every call.

Every answer is right until the next call overwrites it.

problem: normal_gelu
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
request: {"output_reuse": "OUTPUT_REUSE_REJECT"}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.y = None

    def forward(self, x):
        if self.y is None or self.y.shape != x.shape:
            self.y = torch.empty_like(x)
        torch._C._nn.gelu(x, out=self.y)
        return self.y


# Above is S30_one_buffer. Variants, with what differs:
#
# S30_set_storage: new tensors over the storage of an old one.
#   set_ gives a fresh tensor the memory that all answers share.
#   -         if self.y is None or self.y.shape != x.shape:
#   +         if self.y is None:
#   -         return self.y
#   +         return torch.empty(0, device=x.device).set_(self.y.untyped_storage(), 0, x.shape, x.stride())
#
# S30_slices_of_one_buffer: another view of one buffer for every call.
#   The tensors are new ones, their memory is not.
#   -         if self.y is None or self.y.shape != x.shape:
#   -             self.y = torch.empty_like(x)
#   -         torch._C._nn.gelu(x, out=self.y)
#   -         return self.y
#   +         if self.y is None:
#   +             self.y = torch.empty(x.numel(), device=x.device)
#   +         y = self.y.view(x.shape)
#   +         torch._C._nn.gelu(x, out=y)
#   +         return y
