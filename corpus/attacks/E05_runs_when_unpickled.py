"""E05: an output that runs code where it is unpickled.

The payload leaves a file and a word where the corpus looks for them.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR, INCORRECT, REJECTED
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class Payload:
    def __reduce__(self):
        return exec, ("print('ESCAPED: unpickled', flush=True); open('/tmp/kerneldyno-escape-E05', 'w').close()",)


class ModelNew(nn.Module):
    def forward(self, x):
        return Payload()


# Above is E05_reduce_as_output. Variants, with what differs:
#
# E05_reduce_in_exception: an exception that runs code where it is unpickled.
#   Pools of worker processes pickle what was raised and raise it again in the parent.
#   outcome: RUNTIME_ERROR
#   - class Payload:
#   + class Failure(Exception):
#   -         return Payload()
#   +         raise Failure("cannot go on")
