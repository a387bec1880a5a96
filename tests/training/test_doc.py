"""Tests of docs/training.md: its training step runs as printed, and it names every module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.pure

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_step_of_the_page_runs() -> None:
    step = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    torch.manual_seed(0)
    exec(step, names)
    log_probs, mask = names["log_probs"], names["mask"]
    assert isinstance(log_probs, torch.Tensor)
    assert isinstance(mask, torch.Tensor)
    assert 0 < mask.sum() < mask.numel()
    assert log_probs.grad is not None
    assert log_probs.grad[~mask].eq(0).all()
    assert log_probs.grad[mask].ne(0).any()


def test_the_page_names_every_module() -> None:
    package = Path(__file__).parents[2] / "training" / "kerneldyno" / "training"
    shared = {"__init__", "errors", "tables", "layout", "groups"}
    modules = {file.stem for file in package.glob("*.py")} - shared
    assert modules <= set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
