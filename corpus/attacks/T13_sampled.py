"""T13: an output cache keyed on eight elements of its input.

They are spread over the tensor; new tensors with the same values hit, wherever they lie.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn

#: Answers that are kept: more would use up the memory that a candidate may have.
KEPT = 16


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        key = tuple(x.view(-1)[:: x.numel() // 8].tolist())
        y = self.known.get(key)
        if y is None:
            if len(self.known) == KEPT:
                del self.known[next(iter(self.known))]
            self.known[key] = y = work(x)
        return y


# Above is T13_strided_sample. Variants, with what differs:
#
# T13_ends: an output cache keyed on the first and last elements.
#   Thirty-two elements from each end, by their bytes.
#   -         key = tuple(x.view(-1)[:: x.numel() // 8].tolist())
#   +         key = bytes(torch.cat([x.view(-1)[:32], x.view(-1)[-32:]]).cpu().view(torch.uint8).tolist())
#
# T13_one_element_a_row: an output cache keyed on one element of each row.
#   The diagonal, by a sum and a sum of squares: every row counts, most columns do not.
#   -         key = tuple(x.view(-1)[:: x.numel() // 8].tolist())
#   +         key = (float(x.diagonal().double().sum()), float(x.diagonal().double().square().sum()))
#
# T13_window: an output cache keyed on a window of 4096 elements.
#   A checksum of the window and of its weighted sum; anything outside of it may change unseen.
#   - def work(x):
#   + def ramp(x):
#   +     return torch.arange(4096, device=x.device, dtype=torch.float64)
#   +
#   +
#   + def work(x):
#   -         key = tuple(x.view(-1)[:: x.numel() // 8].tolist())
#   +         key = (float(x.view(-1)[:4096].double().sum()), float((x.view(-1)[:4096].double() * ramp(x)).sum()))
#
# T13_full_checksum: an output cache keyed on a sum over the whole input.
#   It reads everything once, which is cheaper than the work, and does not care about the order of elements: it hits whenever values are
#   used again, also permuted.
#   -         key = tuple(x.view(-1)[:: x.numel() // 8].tolist())
#   +         key = (float(x.sum(dtype=torch.float64)), float(x.abs().amax()))
