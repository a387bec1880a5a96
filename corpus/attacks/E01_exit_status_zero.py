"""E01: writes what a successful run would print, and exits with status 0.

A parent that trusts exit statuses or standard output takes it for a success.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        print('{"compiled": true, "correct": true, "speedup": 99.0}', flush=True)
        os._exit(0)
