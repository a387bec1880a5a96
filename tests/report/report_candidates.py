"""The candidates of these tests: correct, wrong, cheating, broken, and some whose text tries to become markup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBLEMS = Path(__file__).parents[2] / "examples" / "problems"

#: Sets window.pwned if a page takes any of it for markup or script.
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'><svg onload=window.pwned=3>"
#: Ends a comment, a style and a data block; clears a terminal; has NUL, a right-to-left override, a line separator.
ODD = "--></style></title>]]>\x1b[2J\x00\u202e\u2028"


def reference(problem: str) -> str:
    """Return the reference source of a problem of examples/."""
    return (PROBLEMS / problem / "reference.py").read_text()


def example(name: str, **fields: Any) -> dict[str, Any]:
    """Return the request fields for a candidate of examples/."""
    problem = name.split("/")[0]
    return {
        "reference_code": reference(problem),
        "kernel_code": (PROBLEMS / f"{name}.py").read_text(),
        "backend": "triton",
        **fields,
    }


def plain(problem: str, expression: str, before: str = "") -> dict[str, Any]:
    """Return the request fields for a candidate in plain torch, which is quick on any machine."""
    head = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source = f"{head}{before}        return {expression}\n"
    return {"reference_code": reference(problem), "kernel_code": source, "backend": "torch"}


SHOUTING = f"        print({HOSTILE + ODD!r} * 40)\n"
RAISING = f"        raise RuntimeError({HOSTILE + ODD!r})\n"

BATCH: dict[str, dict[str, Any]] = {
    "relu/clamp": plain("relu", "x.clamp(min=0)"),
    "relu/untimed": {
        **plain("relu", "torch.maximum(x, torch.zeros_like(x))", SHOUTING + f"        # {HOSTILE}\n"),
        "run_performance": False,
    },
    "relu/wrong": plain("relu", "x.abs()"),
    "relu/decoy": example("relu/decoy"),
    "relu/syntax_error": example("relu/syntax_error"),
    "softmax/own": plain("softmax", "x.softmax(-1)"),
    "softmax/wrong_axis": plain("softmax", "x.softmax(0)"),
    "softmax/segfault": example("softmax/segfault"),
    f"softmax/{HOSTILE}": plain("softmax", "x", RAISING),
    "row_mean/no_model": {**plain("row_mean", "x"), "kernel_code": "x = 1\n"},
    "row_mean/broken_reference": {**plain("row_mean", "x"), "reference_code": "raise ValueError('no reference')\n"},
    "row_mean/nowhere": {**plain("row_mean", "x.mean(1)"), "device": {"kind": "cuda"}, "total_timeout": "1s"},
}
#: The outcome of each candidate of BATCH.
OUTCOMES = {
    "relu/clamp": "CORRECT",
    "relu/untimed": "CORRECT",
    "relu/wrong": "INCORRECT",
    "relu/decoy": "REJECTED",
    "relu/syntax_error": "COMPILE_ERROR",
    "softmax/own": "CORRECT",
    "softmax/wrong_axis": "INCORRECT",
    "softmax/segfault": "RUNTIME_ERROR",
    f"softmax/{HOSTILE}": "RUNTIME_ERROR",
    "row_mean/no_model": "INVALID",
    "row_mean/broken_reference": "REFERENCE_ERROR",
    "row_mean/nowhere": "INFRASTRUCTURE_ERROR",
}


def said(fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a model's answer with a candidate in it, and the fields of its request."""
    return f"Like this:\n```python\n{fields['kernel_code']}```\n", {"backend": fields["backend"]}


#: Three episodes of three turns. Correct candidates are also in BATCH, so stored results answer them.
EPISODES: dict[tuple[str, int], list[tuple[str, dict[str, Any]]]] = {
    ("relu", 0): [
        said(example("relu/syntax_error")),
        said(plain("relu", "x.abs()")),
        said(plain("relu", "x.clamp(min=0)")),
    ],
    ("relu", 1): [
        said(plain("relu", "x.abs()")),
        said(plain("relu", "x.clamp(min=0)")),
        said(plain("relu", "x.neg()")),
    ],
    ("softmax", 0): [
        (f"I will not. {HOSTILE}", {"backend": "torch"}),
        said(plain("softmax", "x.softmax(0)")),
        said(plain("softmax", "x.softmax(-1)")),
    ],
}


@dataclass(frozen=True)
class Recorded:
    """The files of a batch, and of a trainer that records its turns."""

    results: Path
    requests: Path
    turns: Path
    #: The output of `kerneldyno evaluations --json`.
    listing: Path
