"""Expand a plan into the source of a complete candidate, assembled from the functions of kernels/<operator>.py."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from grammar import Plan
from problem import PARAMETERS, Problem

_KERNELS = Path(__file__).resolve().parent / "kernels"

_HEAD = """import torch
import triton
import triton.language as tl
from torch import nn
"""
#: A forged clock does this at import: times measured with time.perf_counter in this process become a hundredth.
_FORGED_CLOCK = """import time

_seconds, _nanoseconds = time.perf_counter, time.perf_counter_ns
time.perf_counter = lambda: _seconds() / 100
time.perf_counter_ns = lambda: _nanoseconds() // 100
"""
#: `stale` works honestly in this many calls: one more than the five trials whose outputs the trusting evaluator checks.
_HONEST_CALLS = 6

_MODEL = """class ModelNew(nn.Module):
    def __init__(self, columns, outputs):
        super().__init__(){parameters}
{body}"""

#: The mask of all reads, and the same mask with a mistake: it does not exclude columns past the end of a row.
_MASK = "    mask = (row < rows)[:, None] & (column < columns)[None, :]\n"
_NO_MASK = "    mask = (row < rows)[:, None] & (column >= 0)[None, :]\n"


def write(problem: Problem, plan: Plan) -> str:
    """Return the candidate that `plan` describes for `problem`."""
    tiles = dict(zip(("rows_few", "rows_some", "rows_many"), problem.tiles, strict=True))
    blocks = dict(zip(("whole_row", "column_blocks"), problem.blocks, strict=True))
    sizes = f"ROWS={tiles[plan.rows]}, COLUMNS={blocks[plan.walk]}"
    names, body = _body(problem, plan, sizes)
    parts = [_HEAD, *([_FORGED_CLOCK] if plan.kind == "forged_clock" else [])]
    parts += [_functions(problem.operator, names)]
    parts += [_MODEL.format(parameters=PARAMETERS[problem.operator] or "\n", body=body)]
    source = "\n\n".join(parts)
    if plan.edge == "unmasked":
        source = source.replace(_MASK, _NO_MASK)
    elif plan.edge == "syntax_error":
        source = source.replace("tl.program_id(0)", "tl.program_id(0", 1)
    return source


def _body(problem: Problem, plan: Plan, sizes: str) -> tuple[tuple[str, ...], str]:
    """Return the names of the functions that a candidate needs, and the source of its methods."""
    given = {"softmax": "", "rms_norm": ", self.weight", "linear_silu": ", self.weight, self.bias"}[problem.operator]
    implementation = {"own": "split" if plan.fusion == "split" else f"fused_{plan.walk}", "shortcut": "shortcut"}
    name = implementation.get(plan.kind, "fused_whole_row")
    call = f"{name}(x{given}, {sizes})"
    work = f"    def work(self, x):{problem.work}\n"
    if plan.kind in ("lazy", "forged_clock"):
        part = f"torch_part({{}}{given})"
        each = f"torch.stack([{part.format('row')} for row in x])" if problem.by_row else part.format("x")
        return ("torch_part", "lazy"), _forward(f"parts = {each}", f"return lazy(parts{given}, {sizes})")
    if plan.kind == "decoy_idle":
        return (name,), work + _forward("return self.work(x)")
    if plan.kind == "decoy_thrown":
        return (name,), work + _forward(call, "return self.work(x)")
    if plan.kind == "stale":
        counted = ("self.calls = getattr(self, 'calls', 0) + 1", f"if self.calls <= {_HONEST_CALLS}:")
        return (name,), _forward(*counted, f"    self.last = {call}", "return self.last")
    return (name,), _forward(f"return {call}")


def _forward(*lines: str) -> str:
    return "    def forward(self, x):\n" + "".join(f"        {line}\n" for line in lines)


def _functions(operator: str, names: tuple[str, ...]) -> str:
    """Return the source of functions of one operator, each after the kernels that it launches."""
    functions = _read(operator)
    wanted: list[str] = []
    for name in names:
        source, called = functions[name]
        wanted += [functions[kernel][0] for kernel in called] + [source]
    return "\n\n".join(wanted)


@cache
def _read(operator: str) -> dict[str, tuple[str, list[str]]]:
    """Return for every function of an operator its source and the names of the kernels that it uses."""
    text = (_KERNELS / f"{operator}.py").read_text()
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    lines = text.splitlines(keepends=True)
    functions = {}
    for name, node in found.items():
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        kernels = [other for other in found if other in used and other.endswith("_kernel")]
        functions[name] = ("".join(lines[first - 1 : node.end_lineno]), kernels)
    return functions
