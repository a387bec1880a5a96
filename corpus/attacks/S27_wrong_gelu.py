"""S27: no dimension but one.

Right but for its shape.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x).view(-1)


# Above is S27_flattened. Variants, with what differs:
#
# S27_double: a wider dtype.
#   Right but for its dtype.
#   -         return F.gelu(x).view(-1)
#   +         return F.gelu(x).double()
#
# S27_expanded: one row, expanded to the shape of all rows.
#   The shape is right, the values of one row are everywhere.
#   -         return F.gelu(x).view(-1)
#   +         return F.gelu(x[:1]).expand(x.shape)
#
# S27_larger_storage: an answer that describes more than its storage holds.
#   as_strided over the input, so that rows overlap.
#   -         return F.gelu(x).view(-1)
#   +         return F.gelu(x.view(-1)[: 2 * x.shape[1]]).as_strided(x.shape, (1, 1))
#
# S27_unsqueezed: a dimension too many.
#   -         return F.gelu(x).view(-1)
#   +         return F.gelu(x)[None]
