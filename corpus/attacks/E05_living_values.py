"""E05: values that are numbers and strings by inheritance only.

Subclasses of int, str and dict whose methods run code in whatever compares, prints, hashes or encodes them.

problem: silu_small
backend: torch
outcome: INCORRECT, RUNTIME_ERROR, REJECTED
devices: cpu, cuda
request: {"run_performance": false}
"""

import os

import torch
import torch.nn as nn

HARNESS = os.getpid()


def living(base):
    def act(self, *arguments):
        if os.getpid() != HARNESS:
            print("ESCAPED: ran outside of its process", flush=True)
            open("/tmp/kerneldyno-escape-E05", "w").close()
        return True

    names = ("__eq__", "__ne__", "__lt__", "__bool__", "__contains__")
    return type(base.__name__, (base,), {name: act for name in names} | {"__hash__": lambda self: 0})


class ModelNew(nn.Module):
    def forward(self, x):
        return living(dict)({living(str)("output"): living(float)(1.0), "tensor": living(int)(0)})
