"""S34: looks for other candidates' sources and results.

Folders beside its own, temporary folders, and the working folders of all processes it can see. It is right if there
are none.

problem: normal_gelu
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F


def siblings():
    here = os.path.dirname(os.path.abspath(__file__))
    tops = {os.path.dirname(here), "/tmp", "/var/tmp", "/dev/shm"}
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                tops.add(os.readlink(f"/proc/{process}/cwd"))
            except OSError:
                continue
    found = []
    for top in sorted(tops - {"/", here}):
        try:
            names = os.listdir(top)
        except OSError:
            continue
        for path in (os.path.join(top, *rest) for name in names[:500] for rest in ((name,), (name, "candidate.py"))):
            if path.endswith("candidate.py") and os.path.dirname(path) != here and os.access(path, os.R_OK):
                found.append(path)
    return found


if siblings():
    raise RuntimeError(f"ESCAPED: {siblings()}")


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
