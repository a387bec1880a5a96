"""A reference and a candidate of ReLU that first do something with memory, for the tests of memory."""

from __future__ import annotations

from typing import Any

from tests.evaluator.judge_harness import request

REFERENCE = """
import torch

kept = []

class Model(torch.nn.Module):
    def forward(self, x):
        {body}
        return torch.relu(x)

def get_inputs():
    return [torch.randn({shape})]
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
        return torch.relu(x)
"""
#: Allocates memory until there is no more, frees it and continues. It never writes to that memory.
GREEDY = """taken = []
        try:
            while True:
                taken.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
        except RuntimeError:
            del taken"""


def problem(body: str = "pass", *, takes: str = "pass", shape: str = "64, 64", **changes: Any) -> dict[str, Any]:
    """Return a request whose reference contains `body` and whose candidate contains `takes`."""
    reference = REFERENCE.format(body=body, shape=shape)
    return request(CANDIDATE.format(body=takes), backend="torch", reference_code=reference, **changes)
