"""E15: a native source whose object takes two gigabytes.

One line of text fills the place where compilers write.

problem: silu_small
backend: torch
outcome: COMPILE_ERROR, RUNTIME_ERROR, OUT_OF_MEMORY
devices: cpu, cuda
request: {"run_performance": false}
"""

import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

with open("huge.cpp", "w") as file:
    file.write("char huge[2ul << 30] = {1};\n")
load(name="huge", sources=[os.path.abspath("huge.cpp")], is_python_module=False)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
