"""R04: a reference changes the evaluator's files, and reads its secrets.

It opens for writing every file of the package, makes new ones beside them, and looks for keys and tokens in files and environments.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import glob
import os

import torch
import torch.nn as nn

import kerneldyno.evaluator as evaluator

here = os.path.dirname(os.path.abspath(evaluator.__file__))


def opens(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


for folder, _, names in os.walk(here):
    for name in names:
        if opens(os.path.join(folder, name), os.O_RDWR | os.O_APPEND):
            raise RuntimeError(f"ESCAPED: may write {folder}/{name}")
    if opens(os.path.join(folder, "kerneldyno-escape"), os.O_WRONLY | os.O_CREAT):
        os.unlink(os.path.join(folder, "kerneldyno-escape"))
        raise RuntimeError(f"ESCAPED: may make files in {folder}")
if any("TOKEN" in name or "SECRET" in name for name in os.environ):
    raise RuntimeError("ESCAPED: sees the evaluator's environment")
for pattern in ("/root/.ssh/*", "/etc/shadow", "/proc/kcore", "/dev/mem", "/run/secrets/*"):
    for path in glob.glob(pattern):
        if os.path.isfile(path) and opens(path, os.O_RDONLY):
            raise RuntimeError(f"ESCAPED: reads {path}")


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
