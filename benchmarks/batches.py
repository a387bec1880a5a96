"""Generate candidates like those of a policy in training: correct, wrong, broken and dishonest, for eight problems.

`mixed` makes 16 candidates for each problem: 8 correct ones (whose kernels differ in rows or tiles a program, and in
warps), 4 wrong ones, a compile error, a runtime error, an illegal access and a decoy. Each wrong one contains a mistake
that models make. Some of these are wrong although they give correct values on the problem's own inputs: a softmax
without its maximum, a layer norm that leaves out weights that happen to be 1. `turns` makes near-identical candidates
in three turns. A seed determines everything, and no two sources are equal.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kerneldyno.client import EvalRequest, EvalResult
from kerneldyno.rpc.jsonio import request_from_json

#: Accepted outcomes of a compile error. The compiler finds a wrong use of Triton, the interpreter only at run time.
COMPILE_ERRORS = ("COMPILE_ERROR",)
INTERPRETED_ERRORS = ("COMPILE_ERROR", "RUNTIME_ERROR")
#: What is replaced in candidates that cannot be imported.
_BROKEN = {
    "compile_error": ("def forward(self,", "def forward(self"),
    "missing_name": ("@triton.jit", "@triton.jit(num_warps=WARPS)"),
    "missing_module": ("from torch import nn", "from torch import nn\nfrom torch_fast_kernels import fused"),
}
#: Sources differ in names of kernels, like samples of a model; these are parts of such names.
_NAMES = ("fused", "tiled", "fast", "simple", "block", "strided", "packed", "vector", "direct", "plain", "lean")
_RIGHT, _WRONG = 8, 4
#: The kinds of 16 candidates of a problem.
_MIXED = (*("right",) * _RIGHT, *("wrong",) * _WRONG, "compile_error", "runtime_error", "illegal_access", "decoy")
#: As above, if half of them fail before they need a device.
_EARLY = (*("right",) * 6, "wrong", "decoy", *("compile_error", "refused", "missing_name", "missing_module") * 2)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A source, its reference, and the correct outcomes."""

    name: str
    kind: str
    problem: str
    reference: str
    source: str
    outcomes: tuple[str, ...]
    backend: str = "triton"
    #: Findings that the result must also have.
    findings: frozenset[str] = frozenset()
    #: In the form of proto-JSON.
    timeouts: Mapping[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Return True if it must be called correct."""
        return self.outcomes == ("CORRECT",)

    def request(self, perf_trials: int, warmup: int) -> EvalRequest:
        """Return the request for this candidate; the fields not set here have their defaults."""
        return request_from_json(
            {
                "id": self.name,
                "reference_code": self.reference,
                "kernel_code": self.source,
                "backend": self.backend,
                "timeouts": dict(self.timeouts),
                "num_perf_trials": perf_trials,
                "num_warmup": warmup,
            }
        )

    def mismatch(self, result: EvalResult) -> str:
        """Return how a verdict on it differs from the correct one; "" if it does not."""
        outcome = EvalResult.Outcome.Name(result.outcome)
        missing = self.findings - {finding.id for finding in result.findings}
        if outcome in self.outcomes and not missing:
            return ""
        expected = " or ".join(self.outcomes) + "".join(f" with {finding}" for finding in sorted(self.findings))
        return f"{self.name}: {outcome}, expected {expected}: {result.message}"


@dataclass(frozen=True, slots=True)
class _Problem:
    name: str
    #: The reference's constructor and forward.
    init: str
    forward: str
    #: True if the kernel computes whole rows, False if it treats all elements alike.
    row: bool
    #: Lines of the kernel that compute `y` from `x`: right, and wrong in four ways.
    right: str
    wrong: tuple[str, ...]
    #: "tile" if y has the shape of x, "row" if y has one value a row.
    makes: str = "tile"
    pad: str = "0.0"
    affine: str = ""


_MEAN = "mean = tl.sum(x, 0) / columns"
_VARIANCE = "centred = tl.where(inside, x - mean, 0.0)\nvariance = tl.sum(centred * centred, 0) / columns"
_NORM = f"{_MEAN}\n{_VARIANCE}\nscaled = centred / tl.sqrt(variance + 1e-5)"
_AFFINE = "w = tl.load(weight + index, mask=inside, other=0.0)\nb = tl.load(bias + index, mask=inside, other=0.0)"
_SOFTMAX = "e = tl.exp(x - tl.max(x, 0))\ny = e / tl.sum(e, 0)"
_SQUARE = "square = tl.sum(x * x, 0) / columns"

PROBLEMS = (
    _Problem(
        "relu", "", "return torch.relu(x)", False,
        right="y = tl.maximum(x, 0.0)",
        wrong=(
            "y = tl.maximum(x, 0.01)",
            "y = tl.abs(x)",
            "y = tl.where(x > 0, x, 0.01 * x)",
            "y = tl.where(x > 0.001, x, 0.0)",
        ),
    ),
    _Problem(
        "gelu", "", "return nn.functional.gelu(x)", False,
        right="y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
        wrong=(
            "y = x * tl.sigmoid(1.702 * x)",
            "y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
            "y = 0.5 * x * (1.0 + tl.erf(x))",
            "y = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))",
        ),
    ),
    _Problem(
        "softmax", "", "return torch.softmax(x, dim=1)", True, pad='-float("inf")',
        right=_SOFTMAX,
        wrong=(
            "e = tl.exp(x)\ny = e / tl.sum(e, 0)",
            "x = tl.where(inside, x, 0.0)\n" + _SOFTMAX,
            "e = tl.exp(x - tl.max(x, 0))\ny = e / (tl.sum(e, 0) + 1.0)",
            "e = tl.exp(tl.maximum(x - tl.max(x, 0), -2.0))\ny = e / tl.sum(tl.where(inside, e, 0.0), 0)",
        ),
    ),
    _Problem(
        "layer_norm", "self.norm = nn.LayerNorm(COLUMNS)", "return self.norm(x)", True,
        affine="self.norm.weight, self.norm.bias, ",
        right=f"{_AFFINE}\n{_NORM}\ny = scaled * w + b",
        wrong=(
            f"{_NORM}\ny = scaled",
            f"{_AFFINE}\n{_NORM}\ny = (scaled + b) * w",
            f"{_AFFINE}\n{_MEAN}\ncentred = x - mean\nvariance = tl.sum(centred * centred, 0) / columns\n"
            "y = centred / tl.sqrt(variance + 1e-5) * w + b",
            f"{_AFFINE}\n{_MEAN}\n{_VARIANCE}\ny = centred / (variance + 1e-5) * w + b",
        ),
    ),
    _Problem(
        "rms_norm", "", "return x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-5)", True,
        right=f"{_SQUARE}\ny = x * tl.rsqrt(square + 1e-5)",
        wrong=(
            "y = x * tl.rsqrt(tl.sum(x * x, 0) / BLOCK + 1e-5)",
            f"{_SQUARE}\ny = x * tl.rsqrt(square)",
            f"{_NORM}\ny = scaled",
            f"{_SQUARE}\ny = x * tl.rsqrt(square + 1e-2)",
        ),
    ),
    _Problem(
        "row_mean", "", "return torch.mean(x, dim=1)", True, makes="row",
        right="y = tl.sum(x, 0) / columns",
        wrong=(
            "y = tl.sum(x, 0) / BLOCK",
            "y = tl.sum(x, 0)",
            "y = tl.sum(tl.where(index < columns - columns // 8, x, 0.0), 0) / columns",
            "y = tl.max(x, 0) / 2 + tl.min(x, 0) / 2",
        ),
    ),
    _Problem(
        "row_max", "", "return torch.max(x, dim=1).values", True, makes="row", pad='-float("inf")',
        right="y = tl.max(x, 0)",
        wrong=(
            "y = tl.max(tl.where(inside, x, 0.0), 0)",
            "y = tl.max(tl.where(inside, tl.abs(x), 0.0), 0)",
            'y = tl.max(tl.where(index < columns // 2, x, -float("inf")), 0)',
            "y = tl.max(tl.where(inside, x, -1.0), 0) + 0.01",
        ),
    ),
)  # fmt: skip
MATMUL = "matmul"
NAMES = (*(problem.name for problem in PROBLEMS), MATMUL)

_REFERENCE = """\
import torch
from torch import nn

ROWS, COLUMNS = {rows}, {columns}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

_CANDIDATE = """\
# {name}
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def {kernel}(source, target, {pointers}count, columns, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    for step in range(STEPS):
{body}


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        {init}

    def forward(self, x):
        y = {output}
        {call}
        return y
"""

_TILE = """\
index = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
inside = index < count
x = tl.load(source + index, mask=inside, other=0.0)
{compute}
tl.store(target + index, y, mask=inside)"""

_ROW = """\
row = tl.program_id(0) * STEPS + step
index = tl.arange(0, BLOCK)
inside = index < columns
x = tl.load(source + row * columns + index, mask=inside, other={pad})
{compute}
{store}"""

_MATMUL = """\
# {name}
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def {kernel}(left, right, target, size, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range({first}, size, BK):
        a = tl.load(left + rows[:, None] * size + (start + inner)[None, :])
        b = tl.load(right + {right})
        total += tl.dot(a{cast}, b{cast}, input_precision="ieee")
    tl.store(target + rows[:, None] * size + columns[None, :], total{scale})


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        {call}
        return c
"""


def mixed(seed: int, *, tiny: bool, per_problem: int = 16) -> list[Candidate]:
    """Make the mixed batch in random order; `tiny` sizes are for Triton's interpreter.

    Of 16 candidates of a problem 8 are correct, 4 wrong and 4 broken or dishonest. A smaller `per_problem` takes a part
    of these 16, spread over all kinds; a larger one makes more such groups.
    """
    return _batch(_MIXED, seed, tiny=tiny, per_problem=per_problem)


def early(seed: int, *, tiny: bool, per_problem: int = 16) -> list[Candidate]:
    """Make a batch as `mixed` does, of which half fail early, as a policy's first samples do.

    Of 16, 8 have a syntax error, a name or a module that does not exist, or a kernel that Triton's compiler refuses.
    """
    return _batch(_EARLY, seed, tiny=tiny, per_problem=per_problem)


def _batch(kinds: Sequence[str], seed: int, *, tiny: bool, per_problem: int) -> list[Candidate]:
    made = []
    for number, name in enumerate(NAMES):
        for first in range(0, per_problem, len(kinds)):
            wanted = min(len(kinds), per_problem - first)
            for at in range(wanted):
                i = at * len(kinds) // wanted
                label = f"{name}/{first + i:02d}-{kinds[i]}"
                made.append(_make(name, kinds[i], i % 8, number, label, seed + first, tiny))
    random.Random(seed).shuffle(made)
    return made


def turns(seed: int, *, tiny: bool, per_problem: int = 16, count: int = 3) -> list[list[Candidate]]:
    """Make trajectories of `count` turns: four kernels a problem and turn; samples of one kernel differ only in names.

    One trajectory in four is wrong in the first turn, one in sixteen also in the second. Later turns use other kernels.
    """
    trajectories = []
    for number, name in enumerate(NAMES):
        for sample in range(per_problem):
            steps = []
            for turn in range(count):
                wrong = (turn == 0 and sample % 4 == 3) or (turn == 1 and sample % 16 == 15)
                kind, variant = ("wrong", sample // 4 % 4) if wrong else ("right", (sample % 4 + turn * 3) % 8)
                label = f"{name}/{sample:02d}-turn{turn + 1}-{kind}"
                steps.append(_make(name, kind, variant, number, label, seed, tiny))
            trajectories.append(steps)
    random.Random(seed).shuffle(trajectories)
    return trajectories


def _make(problem: str, kind: str, variant: int, number: int, label: str, seed: int, tiny: bool) -> Candidate:
    """Make one candidate. `variant` chooses the kernel or the mistake, the problem's `number` one of two faults."""
    draw = random.Random(f"{seed}/{label}")
    kernel = f"{draw.choice(_NAMES)}_{problem}_{draw.randrange(1000)}"
    write = _write_matmul if problem == MATMUL else _write_rows
    reference, source = write(problem, kind, variant, number % 2, f"{label} {seed}", kernel, tiny)
    usual = {"right": "CORRECT", "wrong": "INCORRECT", "decoy": "REJECTED"}
    outcomes: tuple[str, ...] = (usual.get(kind, "RUNTIME_ERROR"),)
    if kind == "refused" or (kind == "compile_error" and number % 2):
        source = source.replace("tl.program_id(0)", "tl.program_number(0)", 1)
        outcomes = INTERPRETED_ERRORS if tiny else COMPILE_ERRORS
    elif kind in _BROKEN:
        source = source.replace(*_BROKEN[kind], 1)
        outcomes = COMPILE_ERRORS
    return Candidate(label, kind, problem, reference, source, outcomes)


def _write_rows(
    problem: str, kind: str, variant: int, fault: int, label: str, kernel: str, tiny: bool
) -> tuple[str, str]:
    what = next(row for row in PROBLEMS if row.name == problem)
    rows, columns = (8, 60) if tiny else (4096, 2000) if what.row else (4096, 4096)
    reference = _REFERENCE.format(
        rows=rows, columns=columns, init=what.init or "pass", arguments="x", forward=what.forward,
        inputs="torch.randn(ROWS, COLUMNS)",
    )  # fmt: skip
    steps, warps = ((1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (4, 8), (1, 2), (2, 2))[variant if kind == "right" else 0]
    block = (64 if tiny else 2048) if what.row else (256 if tiny else 1024)
    compute = what.wrong[variant % _WRONG] if kind == "wrong" else what.right
    shift = " + (1 << 40)" if kind == "illegal_access" else ""
    if what.row:
        store = f"tl.store(target{shift} + row * columns + index, y, mask=inside)"
        if what.makes == "row":
            store = f"tl.store(target{shift} + row, y)"
        body = _ROW.format(pad=what.pad, compute=compute, store=store)
        grid = "(x.shape[0] // {steps},)"
    else:
        body = _TILE.format(compute=compute).replace("target +", f"target{shift} +")
        grid = "(triton.cdiv(x.numel(), {steps} * {block}),)"
    grid = grid.format(steps=steps, block=block)
    output = "torch.empty_like(x)" if what.makes == "tile" else "x.new_empty(x.shape[0])"
    target = "y"
    if kind == "decoy":
        output = what.forward.removeprefix("return ")
        target = "torch.empty_like(y)"
    launch = f"{kernel}[{grid}](x, {target}, {what.affine}x.numel(), x.shape[1], {steps}, {block}, num_warps={warps})"
    call = _call(kind, fault, launch, "x")
    source = _CANDIDATE.format(
        name=label, kernel=kernel, pointers="weight, bias, " if what.affine else "",
        body="\n".join(" " * 8 + line for line in body.splitlines()),
        init=what.init.replace("COLUMNS", str(columns)) or "pass", output=output, call=call,
    )  # fmt: skip
    return reference, source


def _write_matmul(
    problem: str, kind: str, variant: int, fault: int, label: str, kernel: str, tiny: bool
) -> tuple[str, str]:
    size = 32 if tiny else 1024
    reference = _REFERENCE.format(
        rows=size, columns=size, init="pass", arguments="a, b", forward="return torch.matmul(a, b)",
        inputs="torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)",
    )  # fmt: skip
    tiles: Sequence[tuple[int, int, int]] = (
        (32, 32, 32), (64, 32, 32), (32, 64, 32), (64, 64, 16), (32, 32, 16), (16, 64, 32), (64, 16, 32), (16, 32, 32)
    )  # fmt: skip
    bm, bn, bk = (min(side, size // 2) for side in tiles[variant if kind == "right" else 0])
    mistake = variant % _WRONG if kind == "wrong" else -1
    straight = "(start + inner)[:, None] * size + columns[None, :]"
    crossed = "columns[None, :] * size + (start + inner)[:, None]"
    target = "torch.empty_like(a)" if kind == "decoy" else "c"
    launch = f"{kernel}[({size // bm}, {size // bn})](a, b, {target}, {size}, {bm}, {bn}, {bk}, num_warps=4)"
    source = _MATMUL.format(
        name=label, kernel=kernel, first="BK" if mistake == 0 else "0", right=crossed if mistake == 1 else straight,
        cast=".to(tl.bfloat16).to(tl.float32)" if mistake == 2 else "", scale=" * 1.01" if mistake == 3 else "",
        call=_call(kind, fault, launch, "a"),
    )  # fmt: skip
    if kind == "decoy":
        source = source.replace("c = torch.empty_like(a)", "c = torch.matmul(a, b)", 1)
    if kind == "illegal_access":
        source = source.replace("tl.store(target +", "tl.store(target + (1 << 40) +", 1)
    return reference, source


def _call(kind: str, fault: int, launch: str, first: str) -> str:
    """Return the line that launches the kernel, or its replacement."""
    if kind == "runtime_error":
        return f"{first}.columns()" if fault else f"{first}.view(-1, 7)"
    # Two decoys: one launches its kernel and discards the result; the other hides the launch behind a false condition.
    return f"if {first}.dim() == 7:\n            {launch}" if kind == "decoy" and fault else launch
