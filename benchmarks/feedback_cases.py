"""Broken programs for benchmarks/feedback.py: correct ones, mostly from examples/problems, with one or two changes.

Families: "raises" (the program raises or does not compile), "wrong values", "both" (it raises, and once that is
repaired, it gives wrong values) and "slow" (it is correct but slow); feedback_inspected.py has two more. The scripted
model does not know the change: it sees only the program, as a policy sees its previous answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROBLEMS = Path(__file__).resolve().parents[1] / "examples" / "problems"

#: Prefix of a problem whose inputs are 30 times as large, so that exponentials overflow in every trial.
_LARGE = "large "
RAISES, WRONG, BOTH, SLOW = "raises", "wrong values", "both", "slow"


@dataclass(frozen=True, slots=True)
class Case:
    """One program to repair."""

    name: str
    family: str
    problem: str
    source: str
    """The broken program, without the docstring, which could tell what is wrong."""
    backend: str
    right: str
    """The program before the change: the answer of an oracle, and for a slow case the time to approach."""

    @property
    def reference(self) -> str:
        """Source of the problem's reference."""
        text = (PROBLEMS / self.problem.removeprefix(_LARGE) / "reference.py").read_text()
        return text.replace("torch.randn(", "30 * torch.randn(") if self.problem.startswith(_LARGE) else text


#: PyTorch programs, for mistakes that no line of the Triton programs can have.
_SOFTMAX_TORCH = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        largest = x.max(dim=1, keepdim=True).values
        weights = torch.exp(x - largest)
        return weights / weights.sum(dim=1, keepdim=True)
"""
_COLUMNS_TORCH = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = x.t().reshape(-1)
        columns = turned.reshape(x.shape[1], x.shape[0])
        return columns.mean(dim=0)
"""
_RELU_TORCH = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.clamp(min=0.0)
        return out
"""
_NORM_TORCH = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x.pow(2).mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(square + self.eps)
        return x * scale * self.weight
"""


def cases() -> list[Case]:
    """Return all cases, in a stable order."""
    found = []
    for name, (family, base, *changes) in _CHANGES.items():
        right = right_program(base)
        backend = "torch" if base.split("/")[1].startswith("torch") else "triton"
        found.append(Case(name, family, base.split("/")[0], changed(right, changes, name), backend, right))
    return found


def right_program(base: str) -> str:
    """Return the program of this name without its docstring."""
    program = base.removeprefix(_LARGE)
    return _TORCH.get(program) or _without_docstring((PROBLEMS / f"{program}.py").read_text())


def changed(source: str, changes: Sequence[str], name: str) -> str:
    """Return a program after `changes`: the old and the new text, in turn.

    Raises:
        ValueError: an old text is not there exactly once.
    """
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if source.count(old) != 1:
            raise ValueError(f"{name}: the program has {old!r} {source.count(old)} times, not once")
        source = source.replace(old, new)
    return source


def _without_docstring(source: str) -> str:
    return source.split('"""\n', 1)[1].lstrip("\n")


_EXP, _NO_MAXIMUM = "tl.exp(x - tl.max(x, axis=1)[:, None])", "tl.exp(x)"
_AFFINE = "normal * weight[None, :] + bias[None, :]"
_SCALAR = "((), device=predictions.device)"
_SQUARES = "centred * centred, axis=1) / "
_LOWEST = 'tl.full((CLASSES,), -float("inf"), tl.float32)'
_SIGNATURE = "x: torch.Tensor) -> torch.Tensor"

_TORCH = {
    "softmax/torch": _SOFTMAX_TORCH,
    "row_mean/torch": _COLUMNS_TORCH,
    "relu/torch": _RELU_TORCH,
    "rms_norm/torch": _NORM_TORCH,
}

#: By name: the family, the right program, then for each change the old and the new text.
_CHANGES: dict[str, tuple[str, ...]] = {
    "unknown function of triton": (RAISES, "softmax/triton_rows", "column = tl.arange", "column = tl.arrange"),
    "unknown name in a kernel": (RAISES, "relu/triton_blocks", "0.0), mask=mask", "0.0), mask=masks"),
    "name assigned with a slip": (RAISES, "layer_norm/triton_rows", "rows, features = x", "rows, feature = x"),
    "import left out": (RAISES, "row_mean/triton_rows", "import triton.language as tl\n", ""),
    "block no power of two": (
        RAISES,
        "softmax/triton_rows",
        "triton.next_power_of_2(columns)",
        "columns",
    ),
    "bracket not closed": (
        RAISES,
        "gelu_tanh/triton_blocks",
        "x * tl.sigmoid(2.0 * inner), mask",
        "x * tl.sigmoid(2.0 * inner, mask",
    ),
    "colon left out": (
        RAISES,
        "swiglu/torch_one_product",
        f"{_SIGNATURE}:",
        _SIGNATURE,
    ),
    "unknown layer": (RAISES, "layer_norm/triton_rows", "nn.LayerNorm(", "nn.Layernorm("),
    "attribute under another name": (RAISES, "rms_norm/triton_rows", "self.weight = nn", "self.weights = nn"),
    "argument left out": (RAISES, "mse_loss/triton_atomic", "targets, out, count, BLOCK", "targets, out, BLOCK"),
    "view of what is not contiguous": (RAISES, "row_mean/torch", "x.t().reshape(-1)", "x.t().view(-1)"),
    "unknown method": (RAISES, "cross_entropy/triton_rows", "logits.contiguous()", "logits.contigous()"),
    "rows not turned into a column": (RAISES, "softmax/triton_rows", "offsets = row[:, None] *", "offsets = row *"),
    "deviation not turned into a column": (
        RAISES,
        "layer_norm/triton_rows",
        "tl.rsqrt(variance + eps)[:, None]",
        "tl.rsqrt(variance + eps)",
    ),
    "scale not turned into a column": (RAISES, "rms_norm/triton_rows", "x * scale[:, None]", "x * scale"),
    "maxima not turned into a column": (
        RAISES,
        "softmax/triton_rows",
        "tl.max(x, axis=1)[:, None])",
        "tl.max(x, axis=1))",
    ),
    "exponential overflows": (
        WRONG,
        "large softmax/triton_rows",
        _EXP,
        _NO_MAXIMUM,
    ),
    "exponential of torch overflows": (WRONG, "large softmax/torch", "torch.exp(x - largest)", "torch.exp(x)"),
    "padding takes part": (WRONG, "softmax/triton_rows", 'other=-float("inf")', "other=0.0"),
    "largest of no negatives": (
        WRONG,
        "max_reduction/triton_loop",
        _LOWEST,
        "tl.zeros((CLASSES,), tl.float32)",
    ),
    "last programs left out": (WRONG, "gelu_tanh/triton_blocks", "triton.cdiv(count, 16384)", "(count - 1) // 16384"),
    "last element left out": (WRONG, "relu/triton_blocks", "offsets < count", "offsets < count - 1"),
    "dimension kept": (WRONG, "row_mean/torch", "mean(dim=0)", "mean(dim=0, keepdim=True)"),
    "half a precision returned": (
        WRONG,
        "relu/triton_blocks",
        "torch.empty_like(x)",
        "torch.empty_like(x, dtype=torch.float16)",
    ),
    "sums in half precision": (
        WRONG,
        "row_mean/triton_rows",
        "mask=mask, other=0.0), axis=1)",
        "mask=mask, other=0.0).to(tl.float16), axis=1)",
    ),
    "bias and gain left out": (
        WRONG,
        "layer_norm/triton_rows",
        _AFFINE,
        "normal",
    ),
    "divided by one less": (
        WRONG,
        "layer_norm/triton_rows",
        f"{_SQUARES}features",
        f"{_SQUARES}(features - 1)",
    ),
    "epsilon left out": (WRONG, "layer_norm/triton_rows", "tl.rsqrt(variance + eps)", "tl.rsqrt(variance)"),
    "epsilon of torch left out": (WRONG, "rms_norm/torch", "torch.rsqrt(square + self.eps)", "torch.rsqrt(square)"),
    "sum begins anywhere": (
        WRONG,
        "mse_loss/triton_atomic",
        f"torch.zeros{_SCALAR}",
        f"torch.empty{_SCALAR}",
    ),
    "input overwritten": (WRONG, "relu/torch", "x.clamp(min=0.0)", "x.clamp_(min=0.0)"),
    "mean of magnitudes": (
        WRONG,
        "row_mean/triton_rows",
        "mask=mask, other=0.0), axis=1)",
        "mask=mask, other=0.0).abs(), axis=1)",
    ),
    "two outputs for one": (WRONG, "relu/torch", "return out", "return out, x"),
    "along the wrong axis": (WRONG, "softmax/torch", "weights.sum(dim=1", "weights.sum(dim=0"),
    "unknown name, then overflow": (
        BOTH,
        "large softmax/triton_rows",
        _EXP,
        _NO_MAXIMUM,
        "mask=mask)",
        "mask=masks)",
    ),
    "unknown layer, then parameters left out": (
        BOTH,
        "layer_norm/triton_rows",
        _AFFINE,
        "normal",
        "nn.LayerNorm(",
        "nn.Layernorm(",
    ),
    "bracket, then last programs": (
        BOTH,
        "gelu_tanh/triton_blocks",
        "triton.cdiv(count, 16384)",
        "(count - 1) // 16384",
        "x * tl.sigmoid(2.0 * inner), mask",
        "x * tl.sigmoid(2.0 * inner, mask",
    ),
    "argument, then an uninitialised sum": (
        BOTH,
        "mse_loss/triton_atomic",
        f"torch.zeros{_SCALAR}",
        f"torch.empty{_SCALAR}",
        "targets, out, count, BLOCK",
        "targets, out, BLOCK",
    ),
    "view, then a dimension kept": (
        BOTH,
        "row_mean/torch",
        "x.t().reshape(-1)",
        "x.t().view(-1)",
        "mean(dim=0)",
        "mean(dim=0, keepdim=True)",
    ),
    "unknown method, then half precision": (
        BOTH,
        "relu/triton_blocks",
        "x.contiguous()",
        "x.contigous()",
        "torch.empty_like(x)",
        "torch.empty_like(x, dtype=torch.float16)",
    ),
    "blocks of 32": (
        SLOW,
        "relu/triton_blocks",
        "16384),)](x, out, count, BLOCK=16384",
        "32),)](x, out, count, BLOCK=32",
    ),
    "a copy on either side": (
        SLOW,
        "gelu_tanh/triton_blocks",
        "        return out",
        "        return out.clone().clone()",
    ),
    "waits for the device": (
        SLOW,
        "rms_norm/triton_rows",
        "        return out",
        "        out.flatten()[0].item()\n        return out",
    ),
    "a launch for each part": (
        SLOW,
        "gelu_tanh/triton_blocks",
        "        gelu_kernel[(triton.cdiv(count, 16384),)](x, out, count, BLOCK=16384, num_warps=8)",
        "        for part, into in zip(x.chunk(64), out.chunk(64)):\n"
        "            gelu_kernel[(triton.cdiv(part.numel(), 16384),)](part, into, part.numel(), BLOCK=16384, num_warps=8)",
    ),
    "in double precision": (
        SLOW,
        "softmax/triton_rows",
        "numerator = tl.exp(x -",
        "x = x.to(tl.float64)\n    numerator = tl.exp(x -",
    ),
    "the library does it": (
        SLOW,
        "rms_norm/torch",
        "        square = x.pow(2)",
        "        x = x.abs() * x.sign()\n        square = x.pow(2)",
    ),
}
