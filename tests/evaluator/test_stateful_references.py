"""References with state, judged for real: their own copy is right, or the reference is named as the mistake."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.evaluator.judge_harness import Judge, request


def reference(constructor: str, forward: str, before: str = "") -> str:
    """Return a reference with these lines (separated by `;`) in its constructor, in `forward`, and before its class."""
    lines = [
        "import torch",
        "from torch import nn",
        *before.split(";"),
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line.strip()}" for line in constructor.split(";")),
        "    def forward(self, x):",
        *(f"        {line.strip()}" for line in forward.split(";")),
        "def get_inputs():",
        "    return [torch.randn(40, 16)]",
    ]
    return "\n".join(lines) + "\n"


def copied(code: str) -> str:
    """Return a candidate that is the reference itself."""
    return re.sub(r"\bModel\b", "ModelNew", code)


def judged(judge: Judge, code: str, given: str, **fields: Any) -> dict[str, Any]:
    fields = {"stress_inputs": True, "provenance_policy": "PROVENANCE_POLICY_LABEL", "backend": "torch", **fields}
    return judge.evaluate(request(code, reference_code=given, **fields))


EMA = reference(
    "self.register_buffer('ema', torch.rand(16))", "self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return x * self.ema"
)
REPLACED = EMA.replace("self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)", "self.ema = 0.9 * self.ema + 0.1 * x.mean(0)")
NORM = reference("self.b = nn.BatchNorm1d(16)", "return self.b(x), self.b.running_mean.clone()")
CACHE = reference(
    "self.cache = torch.zeros(1, 16)", "self.cache = torch.cat([self.cache.to(x), x]); return self.cache.cumsum(0)"
)

#: References whose answers depend on tensors that calls change.
KEPT = {
    "buffer": EMA,
    "constant buffer": EMA.replace("rand(16)", "zeros(16)"),
    "replaced buffer": REPLACED,
    "returned buffer": EMA.replace("return x * self.ema", "return self.ema"),
    "running mean": NORM,
    "growing tensor": CACHE,
    "growing buffer": CACHE.replace("self.cache = torch.zeros(1, 16)", "self.cache = nn.Buffer(torch.zeros(1, 16))"),
    "parameter": reference("self.w = nn.Parameter(torch.rand(16))", "self.w.data.mul_(0.9); return x * self.w"),
    "spectral norm": reference(
        "self.s = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4))", "return self.s(x)"
    ),
}

#: References whose calls change something that no answer depends on.
HARMLESS = {
    "batch norm": reference("self.b = nn.BatchNorm1d(16)", "return self.b(x)"),
    "counter": reference("self.calls = 0", "self.calls += 1; return torch.sin(x)"),
    "table": reference(
        "self.t = None", "self.t = torch.arange(16.0).to(x) if self.t is None else self.t; return x * self.t"
    ),
    "output": reference("self.y = None", "self.y = torch.sin(x); return self.y"),
    "dropout": reference("self.d = nn.Dropout(0.3)", "return self.d(x)"),
    "compiled": reference("self.f = torch.compile(torch.sin, backend='eager')", "return self.f(x)"),
}

#: References whose answers depend on state that is in no tensor of a module, and its name in the message.
REFUSED = {
    "counter": ("self.calls = 0", "self.calls += 1; return x * self.calls", "", "attribute `calls` of Model"),
    "parity": ("self.n = 0", "self.n += 1; return x if self.n % 2 else -x", "", "attribute `n` of Model"),
    "list": ("self.kv = []", "self.kv.append(x.mean(0)); return x + sum(self.kv)", "", "attribute `kv` of Model"),
    "dict": (
        "self.d = {}",
        "self.d['n'] = self.d.get('n', 0) + 1; return x * self.d['n']",
        "",
        "attribute `d` of Model",
    ),
    "part": (
        "self.part = Part()",
        "return self.part(x)",
        "class Part(nn.Module):;    n = 0;    def forward(self, x):;        self.n += 1;        return x * self.n",
        "attribute `n` of Model.part",
    ),
    "global": ("pass", "global calls; calls += 1; return x * calls", "calls = 0", "global variable `calls`"),
    "class": (
        "pass",
        "Count.n += 1; return x * Count.n",
        "class Count:;    n = 0",
        "attribute `n` of class Count",
    ),
    "lazy by hand": (
        "self.w = None",
        "self.w = torch.randn(16, 8).to(x) if self.w is None else self.w; return x @ self.w",
        "",
        "attribute `w` of Model",
    ),
    "first input": (
        "self.m = None",
        "self.m = x.mean(0) if self.m is None else self.m; return x - self.m",
        "",
        "attribute `m` of Model",
    ),
    "generator": (
        "self.g = torch.Generator().manual_seed(3)",
        "return x + torch.randn(16, generator=self.g).to(x.device)",
        "",
        "attribute `g` of Model",
    ),
}


@pytest.mark.parametrize("which", KEPT)
def test_tensors_that_answers_depend_on_begin_each_call_with_their_first_values(judge: Judge, which: str) -> None:
    code = KEPT[which]
    result = judged(judge, copied(code), code)
    assert result["outcome"] == "CORRECT", result["message"]


@pytest.mark.parametrize("which", HARMLESS)
def test_state_that_no_answer_depends_on_changes_nothing(judge: Judge, which: str) -> None:
    code = HARMLESS[which]
    result = judged(judge, copied(code), code)
    assert result["outcome"] == "CORRECT", result["message"]
    wrong = judged(judge, copied(code).replace("return ", "return 1.01 * "), code)
    assert wrong["outcome"] == "INCORRECT"


@pytest.mark.parametrize("which", REFUSED)
def test_other_state_that_answers_depend_on_is_named(judge: Judge, which: str) -> None:
    *lines, name = REFUSED[which]
    code = reference(*lines)
    result = judged(judge, copied(code), code)
    assert result["outcome"] == "REFERENCE_ERROR"
    assert f"the answer depends on state that calls change: {name}. Compute it from" in result["message"]


@pytest.mark.parametrize("mode", ["MODULE_MODE_EVAL", "MODULE_MODE_TRAIN", "MODULE_MODE_BOTH"])
def test_state_in_each_mode(judge: Judge, mode: str) -> None:
    assert judged(judge, copied(EMA), EMA, module_mode=mode)["outcome"] == "CORRECT"
    assert judged(judge, copied(REPLACED), EMA, module_mode=mode, backward=True)["outcome"] == "CORRECT"
    counter = reference(*REFUSED["counter"][:3])
    assert judged(judge, copied(counter), counter, module_mode=mode)["outcome"] == "REFERENCE_ERROR"


@pytest.mark.parametrize(
    ("right", "wrong", "output"),
    [
        ("mul_(0.9)", "mul_(0.8)", "output"),
        ("return x * self.ema", "y = x * self.ema; self.ema.add_(1); return y", "buffers['ema']"),
        (
            "self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)",
            "return x * (self.ema * 0.9 + x.mean(0) * 0.1)",
            "buffers['ema']",
        ),
        ("self.ema.mul_(0.9)", "self.n = getattr(self, 'n', 0) + 1; self.ema.mul_(0.9 - (self.n > 5))", "output"),
    ],
)
def test_wrong_candidates_of_a_reference_with_state(judge: Judge, right: str, wrong: str, output: str) -> None:
    code = copied(EMA).replace(right, wrong)
    assert code != copied(EMA)
    result = judged(judge, code, EMA)
    assert (result["outcome"], result["incorrect"]["kind"]) == ("INCORRECT", "values"), result["message"]
    assert result["incorrect"]["output"] == output


def test_a_candidate_without_the_tensor_is_told_its_name(judge: Judge) -> None:
    code = copied(reference("self.own = nn.Buffer(torch.rand(16))", "return x * (self.own * 0.9 + x.mean(0) * 0.1)"))
    result = judged(judge, code, EMA)
    assert result["outcome"] == "INCORRECT"
    assert "['buffers']['ema'] is None, expected a tensor" in result["message"]
    assert any("ema" in finding["evidence"] for finding in result["findings"] if finding["id"] == "S29")


@pytest.mark.alone
@pytest.mark.parametrize("which", ["buffer", "replaced buffer", "running mean", "growing tensor"])
def test_timed_calls_begin_with_the_first_values_as_well(judge: Judge, which: str) -> None:
    code = KEPT[which]
    result = judged(judge, copied(code), code, run_performance=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0
    assert result["correctness"]["timed_outputs_checked"] > 0


@pytest.mark.alone
def test_a_reference_with_state_is_timed_compiled(judge: Judge) -> None:
    result = judged(judge, copied(EMA), EMA, run_performance=True, reference_backend="REFERENCE_BACKEND_TORCH_COMPILE")
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0
