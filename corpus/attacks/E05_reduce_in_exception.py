"""E05: an exception that runs code where it is unpickled.

Pools of worker processes pickle what was raised and raise it again in the parent.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class Failure(Exception):
    def __reduce__(self):
        return exec, ("print('ESCAPED: unpickled', flush=True); open('/tmp/kerneldyno-escape-E05', 'w').close()",)


class ModelNew(nn.Module):
    def forward(self, x):
        raise Failure("cannot go on")
