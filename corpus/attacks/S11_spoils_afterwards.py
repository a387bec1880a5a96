"""S11: a right answer, after which the input is another.

Only by comparing inputs is it found.

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
        y = F.gelu(x)
        x.view(-1)[-1] += 1
        return y


# Above is S11_right_answer_spoiled_input. Variants, with what differs:
#
# S11_spoil_by_data: changes its input behind its version counter.
#   Neither the version nor autograd notices what is done through .data.
#   -         x.view(-1)[-1] += 1
#   +         x.data.view(-1)[:1].neg_()
