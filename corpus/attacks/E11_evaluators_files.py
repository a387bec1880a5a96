"""E11: changes the evaluator's own code.

Opens for writing and changes the mode of every file of the package and of torch's comparison, and puts new ones beside them.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import os

import torch
import torch.nn as nn
import torch.testing

import kerneldyno.evaluator as evaluator

here = os.path.dirname(os.path.abspath(evaluator.__file__))
files = [os.path.join(folder, name) for folder, _, names in os.walk(here) for name in names] + [torch.testing.__file__]


def tried(action, *arguments):
    try:
        result = action(*arguments)
    except OSError:
        return False
    if isinstance(result, int):
        os.close(result)
    return True


for path in files:
    if tried(os.open, path, os.O_RDWR | os.O_APPEND):
        raise RuntimeError(f"ESCAPED: may write {path}")
    if tried(os.chmod, path, os.stat(path).st_mode):
        raise RuntimeError(f"ESCAPED: may change the mode of {path}")
for folder in {os.path.dirname(path) for path in files}:
    if tried(os.open, os.path.join(folder, "kerneldyno-escape"), os.O_WRONLY | os.O_CREAT):
        os.unlink(os.path.join(folder, "kerneldyno-escape"))
        raise RuntimeError(f"ESCAPED: may make files in {folder}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
