"""E23: asks for one library where builds are looked for, and for another of the same name where it runs.

If a library were known by its name, or by what the candidate says about it, the wrong one would be loaded.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <Python.h>
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "answering", "", -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
#: A process that looks for builds pretends a GPU of this name.
in_scout = torch.cuda.is_available() and torch.cuda.get_device_name() == "NVIDIA GPU"


def build(name, answer):
    with open(f"{name}.cpp", "w") as file:
        file.write(SOURCE.replace("ANSWER", str(answer)))
    return load(name=name, sources=[os.path.abspath(f"{name}.cpp")])


if in_scout:
    build("answering", 13)
module = build("answering", 42)


class ModelNew(nn.Module):
    def forward(self, x):
        if module.answer() != 42:
            raise RuntimeError("ESCAPED: this is the library of another build")
        return torch.nn.functional.silu(x)


# Above is E23_two_faces. Variants, with what differs:
#
# E23_floods_the_builders: asks for a thousand libraries where builds are looked for.
#   The builders build a few of them, and others need not wait for the rest.
#   -     build("answering", 13)
#   +     for number in range(1000):
#   +         build(f"flood{number}", number)
#
# E23_never_shows_its_builds: never ends where builds are looked for.
#   That place ends it after a while, and its runner builds.
#   -     build("answering", 13)
#   +     while True:
#   +         pass
#
# E23_forks_where_builds_are_looked_for: forks there until something ends it.
#   It must disturb nobody, and its runner builds.
#   -     build("answering", 13)
#   +     while True:
#   +         os.fork()
