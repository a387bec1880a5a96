"""E16: native code whose compilation never ends.

A constant that takes hours to compute.

problem: silu_small
backend: torch
outcome: TIMEOUT, COMPILE_ERROR, OUT_OF_MEMORY, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 8, "compile_timeout": 20, "correctness_timeout": 20, "timing_timeout": 20, "build_timeout": 4}}
"""

import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

SOURCE = """
constexpr unsigned long spin(unsigned long count) {
    unsigned long value = 1;
    for (unsigned long i = 0; i < count; i++) value = value * 31 + i;
    return value;
}
static_assert(spin(1000000000ul) != 0);
"""
FLAGS = ["-fconstexpr-ops-limit=999999999999", "-fconstexpr-loop-limit=2147483647"]

with open("endless.cpp", "w") as file:
    file.write(SOURCE)
load(name="endless", sources=[os.path.abspath("endless.cpp")], extra_cflags=FLAGS, is_python_module=False)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


# Above is E16_native_compile_bomb. Variants, with what differs:
#
# E16_native_template_bomb: templates that need each other, without end and with ever more memory.
#   Two to the power of 900 classes.
#   - constexpr unsigned long spin(unsigned long count) {
#   -     unsigned long value = 1;
#   -     for (unsigned long i = 0; i < count; i++) value = value * 31 + i;
#   -     return value;
#   - }
#   - static_assert(spin(1000000000ul) != 0);
#   + template <int depth, long path> struct Tree {
#   +     static constexpr long size = Tree<depth - 1, 2 * path>::size + Tree<depth - 1, 2 * path + 1>::size;
#   + };
#   + template <long path> struct Tree<0, path> { static constexpr long size = 1; };
#   + static_assert(Tree<60, 1>::size != 0);
