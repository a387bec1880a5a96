"""What a candidate does in place of the work: expressions of the inputs, of `self`, and of the helpers below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .problems import Problem

#: Both round to eleven significant bits, as TensorFloat-32 does.
_ALLOWED_BY_TF32 = ("tf32 inputs", "fp16 inputs")

#: Shortcuts that each problem has.
COMMON: Mapping[str, str] = {
    "bf16 inputs": "self.once({as_bf16})",
    "fp16 inputs": "self.once({as_fp16})",
    "tf32 inputs": "self.once({as_tf32})",
    "bf16 output": "self.once({inputs}).bfloat16().float()",
    "scale": "self.once({inputs}) * {scale}",
    "last column": "last_column(self.once({inputs}))",
    "stale": "self.stale({inputs})",
}
#: Shortcuts of problems whose rows are independent of each other.
BY_ROWS: Mapping[str, str] = {
    "rows": "repeated_end(self.once({without_last_rows}), {row})",
    "one row in many": "one_in_many(self.once({inputs}), {every})",
}

#: Functions that shortcuts call. They stand in each candidate.
HELPERS = """
def rounded(t):
    return ((t.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

def last_column(t):
    t = t.clone()
    t[..., -1] = t[..., -2]
    return t

def repeated_end(t, count):
    return torch.cat([t, t[-count:]])

def one_in_many(t, every):
    t = t.clone()
    t[1::every] = t[: t.shape[0] - 1 : every][: t[1::every].shape[0]]
    return t

def low_rank(x, w, share):
    u, s, v = torch.linalg.svd(w)
    rank = max(1, int(share * len(s)))
    return (x @ v[:rank].T * s[:rank]) @ u[:, :rank].T

def padded(t, x):
    return torch.cat([t, torch.zeros_like(x[:, t.shape[1] :])], 1)

def normed(x, part):
    return (x - part.mean(-1, keepdim=True)) * torch.rsqrt(part.var(-1, keepdim=True, unbiased=False) + 1e-5)
"""


def of(problem: Problem) -> dict[str, str]:
    """Return all shortcuts of a problem."""
    return {**COMMON, **(BY_ROWS if problem.by_rows else {}), **problem.shortcuts}


def allowed(problem: Problem, kind: str) -> Sequence[str]:
    """Return what is no shortcut on this kind of device: the reference may compute in TensorFloat-32 there itself."""
    return _ALLOWED_BY_TF32 if kind == "cuda" and problem.is_convolution else ()
