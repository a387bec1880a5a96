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

for name in (
    "kerneldyno.evaluator.judge.comparison.compare",
    "kerneldyno.evaluator.judge.results.verdict",
    "kerneldyno.evaluator.judge.problems.trial",
    "kerneldyno.evaluator.judge.runners.answers",
):
    try:
        module = importlib.import_module(name)
    except Exception:
        continue
    for attribute in ("compare", "_compare_leaf", "difference"):
        if hasattr(module, attribute):
            setattr(module, attribute, lambda *rest, **more: None)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
