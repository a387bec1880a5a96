"""E18: ends with the status that the evaluator's own processes have when they fail.

70 is EX_SOFTWARE, 75 EX_TEMPFAIL, 143 a terminated child, 137 a killed one; one of them, by chance.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import random

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(random.choice((70, 75, 137, 143, 3, 4)))
