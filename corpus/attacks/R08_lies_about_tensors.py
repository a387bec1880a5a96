"""R08: a reference takes its process over, and lies about what it has.

Tensors of petabytes, which the judge must not allocate.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: REFERENCE_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import sys

import torch
import torch.nn as nn

program = sys.modules["kerneldyno.evaluator.runner.problem"]
honest = program._Server.do_answer
LIE = {"tensors": [["float32", [1 << 40, 1 << 20], [1 << 20, 1], False]]}
program._Server.do_answer = lambda self, order: {**honest(self, order), **LIE}


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# Above is R08_huge_tensors. Variants, with what differs:
#
# R08_tensors_that_are_not_there: a structure that names a tensor that there is not.
#   - LIE = {"tensors": [["float32", [1 << 40, 1 << 20], [1 << 20, 1], False]]}
#   + LIE = {"structure": {"tensor": 7}}
#
# R08_negative_sizes: a tensor with a size below zero.
#   - LIE = {"tensors": [["float32", [1 << 40, 1 << 20], [1 << 20, 1], False]]}
#   + LIE = {"tensors": [["float32", [-8, 16], [16, 1], False]]}
#
# R08_unknown_dtype: a dtype that names a function of torch.
#   - LIE = {"tensors": [["float32", [1 << 40, 1 << 20], [1 << 20, 1], False]]}
#   + LIE = {"tensors": [["load", [8, 16], [16, 1], False]]}
#
# R08_deep_structure: lists in lists, more than any reader's stack takes.
#   - LIE = {"tensors": [["float32", [1 << 40, 1 << 20], [1 << 20, 1], False]]}
#   + LIE = {"structure": eval("[" * 90 + "0" + "]" * 90)}
