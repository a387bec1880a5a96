"""Modules with unusual parameters and constructors, judged for real: lazy, expanded, tied, transposed, sparse ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from kerneldyno.evaluator.shared.modules import placed
from kerneldyno.evaluator.toolkits import toolkits
from kerneldyno.evaluator.toolkits.constructor_arguments import split
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge
from tests.evaluator.test_stateful_references import copied, judged, reference

CPU = torch.device("cpu")

LAZY = reference("self.l = nn.LazyLinear(8)", "return torch.relu(self.l(x))")
PLAIN = LAZY.replace("LazyLinear(8)", "Linear(16, 8)")
LAZY_NORM = reference("self.l = nn.LazyLinear(8); self.b = nn.LazyBatchNorm1d()", "return self.b(self.l(x))")
PLAIN_NORM = LAZY_NORM.replace("LazyLinear(8)", "Linear(16, 8)").replace("LazyBatchNorm1d()", "BatchNorm1d(8)")

EXPANDED = reference("self.register_buffer('w', torch.ones(1).expand(16))", "return torch.sin(x * self.w)")
DENSE = EXPANDED.replace(".expand(16)", ".repeat(16)")
TIED = reference("self.a = nn.Parameter(torch.ones(16)); self.b = self.a", "return torch.sin(x * self.a) * self.b")
UNTIED = TIED.replace("self.b = self.a", "self.b = nn.Parameter(torch.ones(16))")
TIED_LAYERS = reference(
    "self.a = nn.Linear(16, 16); self.b = nn.Linear(16, 16); self.b.weight = self.a.weight",
    "return self.b(torch.relu(self.a(x)))",
)
TRANSPOSED = reference(
    "self.w = nn.Parameter(torch.randn(8, 16).t()); self.register_buffer('c', torch.ones(8, 16).t())",
    "return x @ (self.w * self.c)",
)

#: References of unusual parameters, and right candidates.
UNUSUAL = {
    "lazy": (LAZY, LAZY),
    "lazy, but plain": (LAZY, PLAIN),
    "plain, but lazy": (PLAIN, LAZY),
    "lazy norm": (LAZY_NORM, LAZY_NORM),
    "lazy norm, but plain": (LAZY_NORM, PLAIN_NORM),
    "plain norm, but lazy": (PLAIN_NORM, LAZY_NORM),
    "expanded": (EXPANDED, EXPANDED),
    "expanded, but dense": (EXPANDED, DENSE),
    "dense, but expanded": (DENSE, EXPANDED),
    "expanded rows": (
        reference("self.register_buffer('w', torch.ones(1, 16).expand(40, 16))", "return torch.sin(x * self.w)"),
        reference("self.register_buffer('w', torch.ones(40, 16))", "return torch.sin(x * self.w)"),
    ),
    "expanded parameter": (
        reference("self.w = nn.Parameter(torch.ones(1).expand(16))", "return torch.sin(x * self.w)"),
        reference("self.w = nn.Parameter(torch.ones(16))", "return torch.sin(x * self.w)"),
    ),
    "tied": (TIED, TIED),
    "tied, but apart": (TIED, UNTIED),
    "tied, but one": (
        TIED,
        reference("self.c = nn.Parameter(torch.ones(16))", "return torch.sin(x * self.c) * self.c"),
    ),
    "tied buffer": (TIED.replace("nn.Parameter", "nn.Buffer"), TIED.replace("nn.Parameter", "nn.Buffer")),
    "tied layers": (TIED_LAYERS, TIED_LAYERS),
    "transposed": (TRANSPOSED, TRANSPOSED),
    "transposed, but dense": (
        TRANSPOSED,
        reference(
            "self.w = nn.Parameter(torch.randn(8, 16).t().contiguous()); self.register_buffer('c', torch.ones(16, 8))",
            "return x @ (self.w * self.c)",
        ),
    ),
    "sparse": (
        reference("self.s = nn.Buffer(torch.eye(16).to_sparse())", "return torch.sparse.mm(self.s, x.t()).t()"),
        reference("pass", "return x.clone()"),
    ),
}


@pytest.mark.parametrize("which", UNUSUAL)
def test_right_candidates(judge: Judge, which: str) -> None:
    given, code = UNUSUAL[which]
    result = judged(judge, copied(code), given)
    assert result["outcome"] == "CORRECT", result["message"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (LAZY, LAZY.replace("relu", "tanh")),
        (LAZY, LAZY.replace("return", "self.l.bias.data.zero_(); return")),
        (LAZY_NORM, LAZY_NORM.replace("self.b(self.l(x))", "self.b(self.l(x)) / self.b.weight")),
        (EXPANDED, reference("pass", "return torch.sin(x)")),
        (TIED, TIED.replace(" * self.b", "")),
        (UNTIED, TIED),
        (TRANSPOSED, TRANSPOSED.replace(" * self.c", "")),
    ],
    ids=["lazy", "no bias", "no scale", "no buffer", "one of two", "tied", "no factor"],
)
def test_wrong_candidates(judge: Judge, given: str, code: str) -> None:
    assert judged(judge, copied(code), given)["outcome"] == "INCORRECT"


@pytest.mark.parametrize(
    "fields",
    [
        *({"precision": f"PRECISION_{name}"} for name in ("FP16", "BF16", "FP8", "FP64")),
        {"backward": True},
        {"module_mode": "MODULE_MODE_BOTH"},
        {"stress_inputs": False},
    ],
    ids=str,
)
def test_lazy_modules_with_other_requests(judge: Judge, fields: dict[str, Any]) -> None:
    for code in (LAZY_NORM, PLAIN_NORM):
        result = judged(judge, copied(code), LAZY_NORM, **fields)
        assert result["outcome"] == "CORRECT", result["message"]


@pytest.mark.alone
def test_a_lazy_module_is_timed(judge: Judge) -> None:
    result = judged(judge, copied(LAZY), LAZY, run_performance=True)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["speedup"] > 0


def test_a_lazy_candidate_that_cannot_be_called_is_told_why(judge: Judge) -> None:
    unused = LAZY.replace("self.l = ", "self.unused = nn.LazyLinear(3); self.l = ")
    result = judged(judge, copied(unused), LAZY)
    assert result["outcome"] == "RUNTIME_ERROR"
    assert "unused.weight, unused.bias of a lazy module had no shape after a call" in result["message"]
    assert judged(judge, copied(LAZY), unused)["outcome"] == "REFERENCE_ERROR"


@pytest.mark.pure
def test_lazy_modules_are_called_in_eval_mode_if_that_suffices() -> None:
    module = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    module[1].eval()
    made: Any = placed(module, CPU, 0, lambda: [torch.zeros(3, 5)])
    assert (made[0].weight.shape, made[0].training, made[1].training) == ((4, 5), True, False)
    assert int(made[1].num_batches_tracked) == 0

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if self.training else x

    other: Any = placed(Other(), CPU, 0, lambda: [torch.zeros(3, 5)])
    assert other.layer.weight.shape == (4, 5)


@pytest.mark.pure
def test_expanded_tensors_become_dense_and_others_stay() -> None:
    module = nn.Module()
    module.one = module.two = nn.Buffer(torch.rand(1).expand(4))
    module.weight = nn.Parameter(torch.rand(3, 1).expand(3, 4))
    module.turned = nn.Buffer(torch.rand(3, 4).t())
    weight, turned = module.weight, module.turned
    before = weight.detach().clone()
    placed(module, CPU, 0, list)
    assert module.one is module.two
    assert module.one.stride() == (1,)
    assert module.weight is weight
    assert weight.stride() == (4, 1)
    assert torch.equal(weight, before)
    assert module.turned is turned


class _Forms:
    @staticmethod
    def three(a: int, b: int, c: int, scale: float = 1.0) -> None: ...

    @staticmethod
    def sizes_and_options(sizes: list[int], options: dict[str, float]) -> None: ...

    @staticmethod
    def keyword(*, a: int = 0) -> None: ...

    @staticmethod
    def one(a: Any = None) -> None: ...


@pytest.mark.pure
@pytest.mark.parametrize(
    ("made", "constructor", "expected"),
    [
        ([[16, 32, 8], {"scale": 2.0}], _Forms.three, ([16, 32, 8], {"scale": 2.0})),
        ([(16, 32, 8), {}], _Forms.three, ([16, 32, 8], {})),
        ([16, 32, 8], _Forms.three, ([16, 32, 8], {})),
        ((16, 32, 8, 2.0), _Forms.three, ([16, 32, 8, 2.0], {})),
        ([[16, 32, 8], {"scale": 2.0}], _Forms.sizes_and_options, ([[16, 32, 8], {"scale": 2.0}], {})),
        ([[], {"a": 1}], _Forms.keyword, ([], {"a": 1})),
        ([{"a": 1}], _Forms.keyword, ([], {"a": 1})),
        ({"a": 1}, _Forms.keyword, ([], {"a": 1})),
        ([{"a": 1}], _Forms.one, ([{"a": 1}], {})),
        ([[16, 32, 8]], _Forms.one, ([[16, 32, 8]], {})),
        ([[16, 32], {"b": 1}], _Forms.one, ([16, 32], {"b": 1})),
        ([], _Forms.one, ([], {})),
        (None, _Forms.one, ([], {})),
    ],
)
def test_forms_of_constructor_arguments(made: Any, constructor: Any, expected: Any) -> None:
    assert split(made, constructor) == expected


@pytest.mark.pure
@pytest.mark.parametrize("made", [3, "ab", torch.zeros(2)])
def test_other_forms_are_refused_with_the_right_ones(made: Any) -> None:
    with pytest.raises(TypeError, match=r"not a list; return a list of positional arguments, a dict of"):
        split(made, _Forms.one)


CHANGED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, sizes, options):
        super().__init__()
        self.last = nn.Linear(sizes.pop(), options.pop("out"))

    def forward(self, x):
        return self.last(x)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [[4, 16], {"out": 2}]
"""


def test_a_constructor_that_changes_its_arguments(judge: Judge) -> None:
    result = judged(judge, copied(CHANGED), CHANGED)
    assert result["outcome"] == "CORRECT", result["message"]


def test_tensors_among_constructor_arguments_are_refused(judge: Judge) -> None:
    given = CHANGED.replace('{"out": 2}', '{"out": torch.tensor(2)}')
    result = judged(judge, copied(given), given)
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "get_init_inputs() returned a tensor; pass shapes" in result["message"]


@pytest.mark.pure
def test_a_sketch_has_the_same_arguments() -> None:
    sketch = toolkits()["kernelbench"].sketch(judge_harness.spec("", reference_code=CHANGED).problem)
    assert sketch is not None
    assert (sketch.init_args, sketch.init_kwargs) == ([[4, 16], {"out": 2}], {})
