"""S15: imports the judge's own modules, and patches their verdict.

Comparison and verdict are in the package that the process was started from.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import importlib

import torch
import torch.nn as nn

for name in ("compare", "verdict", "trial", "answers"):
    try:
        module = importlib.import_module(f"kerneldyno.evaluator.judge.{name}")
    except Exception:
        continue
    for attribute in ("compare", "_compare_leaf", "_structural_difference"):
        if hasattr(module, attribute):
            setattr(module, attribute, lambda *rest, **more: None)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
