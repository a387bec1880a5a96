"""Problems whose modules are large and quickly called, for the tests of the host's memory."""

from __future__ import annotations

from typing import Any

from tests.evaluator.judge_harness import request

MIB = 1 << 20

#: The module `name` multiplies its inputs by the first of its rows, which take `mib` MiB. `made` makes them: `rows` of
#: 1024 numbers each.
_TABLE = """
import torch
{prologue}

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        rows = {mib} << 8
        self.table = torch.nn.Parameter({made})

    def forward(self, x):
        return self.table[:64] * x

def get_inputs():
    return [torch.randn(64, 1024)]
"""
DRAWN = "torch.empty(rows, 1024).uniform_(-1, 1)"


def table(mib: int, *, made: str = DRAWN, prologue: str = "", **changes: Any) -> dict[str, Any]:
    """Return a request that judges such a module against itself; only the candidate begins with `prologue`."""
    reference = _TABLE.format(name="Model", mib=mib, made=made, prologue="")
    kernel = _TABLE.format(name="ModelNew", mib=mib, made=made, prologue=prologue)
    return request(kernel, backend="torch", reference_code=reference, **changes)
