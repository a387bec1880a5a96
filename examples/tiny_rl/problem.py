"""The problems of tiny_rl: a few operators, each in two sizes that the policy does not know.

An operator's work is written once, for one row or for many. On the CPU the reference applies it row by row, as code
written for one item often does: that is slow enough for an interpreted kernel to be faster. On a GPU the reference
calls torch's own operator for all rows at once, so that only a good kernel is faster, and a cheat has more to gain than
a good kernel. The policy's prompt names only the operator, and only a verdict can tell the size: that makes a second
turn worth more than the first.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Work of each operator on the last dimension, step by step. `self` holds the parameters, x is one row or many.
_WORK = {
    "softmax": """
        e = (x - x.max(-1, keepdim=True).values).exp()
        return e / e.sum(-1, keepdim=True)
""",
    "rms_norm": """
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return x * scale * self.weight
""",
    "linear_silu": """
        y = torch.matmul(x, self.weight.t()) + self.bias
        return y * torch.sigmoid(y)
""",
}

#: The same work with torch's own operators.
_TORCH_WORK = {
    "softmax": """
        return torch.softmax(x, -1)
""",
    "rms_norm": """
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, 1e-6)
""",
    "linear_silu": """
        return nn.functional.silu(nn.functional.linear(x, self.weight, self.bias))
""",
}

#: Parameters of each operator, for reference and candidate alike. A shortcut leaves out the ones and zeros.
PARAMETERS = {
    "softmax": "",
    "rms_norm": """
        self.weight = nn.Parameter(torch.ones(columns))
""",
    "linear_silu": """
        self.weight = nn.Parameter(torch.randn(outputs, columns) / columns**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))
""",
}

OPERATORS = tuple(_WORK)

_REFERENCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns, outputs):
        super().__init__(){parameters}
    def work(self, x):{work}
    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}, {outputs}]
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """One operator at one size."""

    operator: str
    #: "small" or "large"; hidden from the policy.
    size: str
    rows: int
    columns: int
    outputs: int
    #: Rows of one Triton program, for the tokens rows_few, rows_some and rows_many.
    tiles: tuple[int, int, int]
    #: Columns of one block, for the tokens whole_row and column_blocks.
    blocks: tuple[int, int]
    #: True: torch works row by row and step by step. False: torch calls its own operator for all rows at once.
    by_row: bool

    @property
    def name(self) -> str:
        """Name of the problem, for example softmax/large."""
        return f"{self.operator}/{self.size}"

    @property
    def work(self) -> str:
        """Body of the method `work` of the reference."""
        return (_WORK if self.by_row else _TORCH_WORK)[self.operator]

    @property
    def reference(self) -> str:
        """The problem in KernelBench's form."""
        return _REFERENCE.format(
            parameters=PARAMETERS[self.operator] or "\n",
            work=self.work,
            forward="torch.stack([self.work(row) for row in x])" if self.by_row else "self.work(x)",
            rows=self.rows,
            columns=self.columns,
            outputs=self.outputs,
        )


def small() -> list[Problem]:
    """Return problems for Triton's interpreter: a program takes milliseconds at any size, so few and large ones win."""
    return [
        Problem(operator, size, rows, 12, 12, (256, 1024, 4096), (16, 8), by_row=True)
        for operator in ("softmax", "rms_norm")
        for size, rows in (("small", 1000), ("large", 3000))
    ]


def quick() -> list[Problem]:
    """Return only the smallest problem of `small`: all its programs are judged within a minute."""
    return [each for each in small() if each.name == "rms_norm/small"]


def h200() -> list[Problem]:
    """Return problems for a GPU: memory-bound rows, short and long, and a narrow product with an activation."""
    rows = [
        Problem(
            operator,
            size,
            count,
            columns,
            columns,
            (1, 4, 16),
            (_power_of_2(columns), _power_of_2(columns) // 4),
            by_row=False,
        )
        for operator in ("softmax", "rms_norm")
        for size, count, columns in (("small", 65536, 1000), ("large", 32768, 3000))
    ]
    products = [
        Problem("linear_silu", size, count, 120, 120, (16, 64, 128), (128, 32), by_row=False)
        for size, count in (("small", 65536), ("large", 1 << 20))
    ]
    return [*rows, *products]


PRESETS = {"quick": quick, "small": small, "h200": h200}


def _power_of_2(count: int) -> int:
    return 1 << (count - 1).bit_length()
