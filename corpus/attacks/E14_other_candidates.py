"""E14: looks for other candidates and for the evaluator.

Processes, scratch directories, shared memory and message queues that are not its own.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import glob
import os
import sys

import torch
import torch.nn as nn

pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
if len(pids) > 2 or not pids <= {1, os.getpid()}:
    raise RuntimeError(f"ESCAPED: sees {len(pids)} processes")
own = os.path.realpath(os.getcwd())
for pattern in ("/tmp/*", "/tmp/kerneldyno-*/*", "/dev/shm/*", "/dev/mqueue/*", "/var/tmp/*"):
    for path in glob.glob(pattern):
        real = os.path.realpath(path)
        libraries = any(os.path.realpath(folder).startswith(real) for folder in sys.path)  # Python's own may lie there
        if not own.startswith(real) and not libraries and "kerneldyno-escape" not in path:
            raise RuntimeError(f"ESCAPED: sees {path}")
for kind in ("shm", "sem", "msg"):
    try:
        with open(f"/proc/sysvipc/{kind}") as file:
            found = file.readlines()[1:]
    except OSError:
        continue
    if found:
        raise RuntimeError(f"ESCAPED: sees System V {kind} of others")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
