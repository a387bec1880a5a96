"""E01: SystemExit, which `except Exception` does not catch.

sys.exit(0) unwinds an evaluator's own loop and ends it with status 0, an atexit hook prints the result.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import atexit
import sys

import torch
import torch.nn as nn

atexit.register(print, "check: pass\nbenchmark-mean: 1.0", flush=True)


class ModelNew(nn.Module):
    def forward(self, x):
        sys.exit(0)
