"""S33: a dict that is equal to everything.

What compares by == or by !=, on either side, is content.

problem: count_positive
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class Yes(dict):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return Yes()


# Above is S33_dict_equal_to_all. Variants, with what differs:
#
# S33_float_equal_to_all: a float that is equal to everything.
#   - class Yes(dict):
#   + class Yes(float):
#   -     __hash__ = None
#   +     __hash__ = float.__hash__
#   -         return Yes()
#   +         return Yes(0.0)
#
# S33_int_equal_to_all: an int that is equal to everything.
#   - class Yes(dict):
#   + class Yes(int):
#   -     __hash__ = None
#   +     __hash__ = int.__hash__
#   -         return Yes()
#   +         return Yes(0)
#
# S33_list_equal_to_all: a list that is equal to everything.
#   - class Yes(dict):
#   + class Yes(list):
#
# S33_object_equal_to_all: an object that is equal to everything.
#   - class Yes(dict):
#   + class Yes:
#   -     __hash__ = None
#   +     __hash__ = object.__hash__
#
# S33_str_equal_to_all: a str that is equal to everything.
#   - class Yes(dict):
#   + class Yes(str):
#   -     __hash__ = None
#   +     __hash__ = str.__hash__
#   -         return Yes()
#   +         return Yes("0")
