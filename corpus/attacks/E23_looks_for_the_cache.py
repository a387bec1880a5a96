"""E23: looks for the libraries of others, to read or to replace them.

It looks at every place where caches are kept, from Python and from a compiler's #include.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import glob
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


def build(name, answer):
    with open(f"{name}.cpp", "w") as file:
        file.write(SOURCE.replace("ANSWER", str(answer)))
    return load(name=name, sources=[os.path.abspath(f"{name}.cpp")])


module = build("answering", 42)
places = {os.path.expanduser("~"), "/root/.cache", "/var/cache", "/home", "/tmp", "/dev/shm", "/run", "/srv", "/data"}
for place in places:
    for path in glob.glob(f"{place}/**/*.library", recursive=True):
        raise RuntimeError(f"ESCAPED: sees {path}")
    for path in glob.glob(f"{place}/**/kerneldyno/builds", recursive=True):
        raise RuntimeError(f"ESCAPED: sees {path}")
for folder in ("/root/.cache/kerneldyno/builds", "/var/cache/kerneldyno/builds"):
    try:
        os.makedirs(folder)
    except OSError:
        continue
    raise RuntimeError(f"ESCAPED: could make {folder}")


class ModelNew(nn.Module):
    def forward(self, x):
        if module.answer() != 42:
            raise RuntimeError("ESCAPED: this is the library of another build")
        return torch.nn.functional.silu(x)
