"""Snapshots of a reference's state, and experiments on what its answers depend on, without a judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldyno.evaluator.shared.spec import TimedForm
from kerneldyno.evaluator.toolkits import ReferenceFailure, dependence, state, toolkits
from kerneldyno.evaluator.toolkits.base import run_source
from kerneldyno.evaluator.toolkits.torch_settings import build
from tests import sampling
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

CPU = torch.device("cpu")

#: Each kind of state: how it is made in the constructor, how a call changes it, and a number or tensor made of it.
#: A kind whose name is the tensor's name can be restored on both sides.
KINDS = {
    "buffer": ("self.register_buffer('buffer', torch.rand(3))", "self.buffer.mul_(0.5)", "self.buffer"),
    "swapped": ("self.register_buffer('swapped', torch.rand(3))", "self.swapped = self.swapped * 0.5", "self.swapped"),
    "weight": ("self.weight = nn.Parameter(torch.rand(3))", "self.weight.data.mul_(0.5)", "self.weight"),
    "tensor": ("self.tensor = torch.rand(3)", "self.tensor += 1", "self.tensor"),
    "part.ema": ("self.part = Part()", "self.part.ema.add_(1)", "self.part.ema"),
    "number": ("self.number = 1", "self.number += 1", "self.number"),
    "list": ("self.list = [1.0]", "self.list[0] += 1", "self.list[0]"),
    "tensors": ("self.tensors = {'a': torch.ones(3)}", "self.tensors['a'] += 1", "self.tensors['a']"),
    "deque": ("self.deque = collections.deque([1])", "self.deque.append(2)", "len(self.deque)"),
    "set": ("self.set = {1}", "self.set.add(len(self.set) + 1)", "len(self.set)"),
    "pair": ("self.pair = (1, (2, 3))", "self.pair = (1, (2, self.pair[1][1] + 1))", "self.pair[1][1]"),
    "counted": ("pass", "counted += 1", "counted"),
    "shared": ("pass", "shared.append(1)", "len(shared)"),
    "own": ("self.own = Own()", "self.own.n += 1", "self.own.n"),
    "slots": ("self.slots = Slots()", "self.slots.n += 1", "self.slots.n"),
    "class": ("pass", "Own.all += 1", "Own.all"),
    "closure": ("pass", "step()", "step(0)"),
    "generator": ("self.generator = torch.Generator()", "torch.rand(1, generator=self.generator)", "draw(self.generator)"),
    "array": ("self.array = np.ones(3)", "self.array[1] += 1", "float(self.array[1])"),
    "hidden": ("self.hidden = [Part()]", "self.hidden[0].ema.add_(1)", "self.hidden[0].ema"),
}  # fmt: skip
NAMED = {"buffer", "swapped", "weight", "tensor", "part.ema"}

FILE = """
import collections
import numpy as np
import torch
from torch import nn

counted = 1
shared = []

class Own:
    all = 1
    def __init__(self):
        self.n = 1

class Slots:
    __slots__ = ("n",)
    def __init__(self):
        self.n = 1

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.rand(3))

def counter():
    n = 1
    def step(by=1):
        nonlocal n
        n += by
        return n
    return step

step = counter()

def draw(generator):
    return torch.rand(1, generator=generator.clone_state())

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, x):
        global counted
{body}
        return y

def get_inputs():
    return [torch.randn(4, 3)]
"""


def source(changed: list[str], read: list[str]) -> str:
    """Return a reference whose calls change some kinds of state, and whose answer depends on the kinds in `read`."""
    kinds = [KINDS[kind] for kind in dict.fromkeys([*changed, *read])]
    body = ["y = x", *(f"y = y + {KINDS[kind][2]}" for kind in read), *(KINDS[kind][1] for kind in changed)]
    indented: Callable[[list[str]], str] = lambda lines: "\n".join(f"        {line}" for line in lines)  # noqa: E731
    return FILE.format(made=indented([made for made, _, _ in kinds] or ["pass"]), body=indented(body))


def problem(code: str, **fields: Any) -> Any:
    spec = judge_harness.spec("", reference_code=code, stress_inputs=True, **fields).problem
    return build(toolkits()[spec.toolkit], spec, CPU, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_state_is_found(kind: str) -> None:
    asked = problem(source([kind], [kind]))
    if kind in NAMED:
        (x,) = asked.inputs(0, 1)
        assert asked.buffers == [kind]
        first, again, precise = asked.expected(0, [x], 1), asked.expected(0, [x], 1), asked.precise([x], 1)
        assert torch.equal(first["output"], again["output"])
        assert torch.allclose(first["buffers"][kind].double(), precise["buffers"][kind].double())
        return
    with pytest.raises(ReferenceFailure) as raised:
        asked.inputs(0, 1)
    assert raised.value.stage == "reference"
    assert raised.value.error.type == "StatefulReferenceError"


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_is_only_changed_or_only_read_does_not_matter(kind: str) -> None:
    for code in (source([kind], []), source([], [kind])):
        asked = problem(code)
        asked.inputs(0, 1)
        assert not asked.buffers


@settings(max_examples=sampling.examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(list(KINDS)), unique=True, max_size=4), st.sets(st.sampled_from(list(KINDS)), max_size=3)
)
def test_what_matters_is_what_is_changed_and_read(changed: list[str], read: set[str]) -> None:
    asked = problem(source(changed, sorted(read)))
    matters = [kind for kind in changed if kind in read]
    if all(kind in NAMED for kind in matters):
        (x,) = asked.inputs(0, 1)
        assert set(asked.buffers) == set(matters)
        answers = [asked.expected(0, [x], 1) for _ in range(2)]
        outputs = [answer["output"] if matters else answer for answer in answers]
        assert torch.equal(*outputs)
    else:
        with pytest.raises(ReferenceFailure, match="the answer depends on state that calls change") as raised:
            asked.inputs(0, 1)
        said = raised.value.error.message
        assert "buffer `" not in said.replace("buffer `ema` of Part in", "")
        assert not ("attribute `number`" in said and "number" not in matters)


def snapshot_of(code: str) -> tuple[Any, Any, state.Snapshot]:
    file = run_source(code)
    model = file.Model()
    return file, model, state.Snapshot(model, file)


def test_a_snapshot_restores_everything_in_place() -> None:
    file, model, snapshot = snapshot_of(source(list(KINDS), list(KINDS)))
    tensors = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    x = torch.ones(2, 3)
    with torch.no_grad():
        first = model(x)
        assert not torch.equal(model(x), first)
        assert len(snapshot.changed()) >= len(KINDS)
        snapshot.restore()
        assert snapshot.changed() == []
        assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == tensors
        assert file.shared == []
        assert torch.equal(model(x), first)


def test_some_places_can_be_restored_alone() -> None:
    _, model, snapshot = snapshot_of(source(["number", "list", "buffer"], []))
    model(torch.ones(2, 3))
    labels = {place.label: place.key for place in snapshot.changed()}
    assert list(labels) == ["buffer `buffer` of Model", "attribute `number` of Model", "attribute `list` of Model"]
    snapshot.restore(but=[labels["attribute `list` of Model"]])
    assert [place.label for place in snapshot.changed()] == ["attribute `list` of Model"]
    snapshot.restore(only=[labels["attribute `number` of Model"]])
    assert model.list == [2.0]
    snapshot.restore(only=labels.values())
    assert model.list == [1.0]


def test_names_that_calls_add_are_removed() -> None:
    _, model, snapshot = snapshot_of(source([], []))
    model.added = 3
    model.register_buffer("more", torch.ones(2))
    assert {place.label for place in snapshot.changed()} == {"attribute `added` of Model", "buffer `more` of Model"}
    assert {place.name for place in snapshot.changed()} == {""}
    snapshot.restore()
    assert not hasattr(model, "added")
    assert not hasattr(model, "more")


def test_values_and_not_objects_are_compared() -> None:
    _, model, snapshot = snapshot_of(source(["buffer", "number", "pair"], []))
    model.buffer, model.number, model.pair = model.buffer.clone(), int("1"), (1, (2, 3))
    assert snapshot.changed() == []


def test_large_parameters_are_only_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_COPIED", 8)
    with pytest.raises(ReferenceFailure, match="parameter `weight` of Model"):
        problem(source(["weight"], ["weight"])).inputs(0, 1)
    problem(source([], ["weight"])).inputs(0, 1)


def test_sparse_tensors_may_not_change() -> None:
    code = source([], []).replace("pass\n", "self.s = nn.Buffer(torch.eye(3).to_sparse())\n")
    problem(code).inputs(0, 1)
    with pytest.raises(ReferenceFailure, match="buffer `s` of Model"):
        problem(code.replace("return y", "self.s.mul_(2); return y")).inputs(0, 1)


def test_views_and_unusual_numbers_are_restored() -> None:
    made = "self.ema = nn.Buffer(torch.rand(3)); self.wide = self.ema.expand(4, 3); self.part = self.ema[:2]"
    code = source(["buffer"], []).replace("self.register_buffer('buffer', torch.rand(3))", made)
    asked = problem(code.replace("self.buffer.mul_(0.5)", "self.ema.mul_(0.5); y = y + self.wide"))
    (x,) = asked.inputs(0, 1)
    assert set(asked.buffers) == {"ema"}
    assert torch.equal(asked.expected(0, [x], 1)["output"], asked.expected(0, [x], 1)["output"])
    made = "self.z = torch.rand(3, dtype=torch.complex64).conj(); self.n = torch.rand(3, dtype=torch.complex64).imag"
    code = source(["buffer"], []).replace("self.register_buffer('buffer', torch.rand(3))", made)
    asked = problem(code.replace("self.buffer.mul_(0.5)", "self.z.mul_(2); self.n.mul_(2); y = y + self.z + self.n"))
    asked.inputs(0, 1)
    assert set(asked.buffers) == {"z", "n"}


def test_places_that_only_matter_together_are_all_found() -> None:
    code = source(["number", "list"], []).replace("return y", "return y + (self.number > 2 and self.list[0] > 2)")
    with pytest.raises(ReferenceFailure, match="attribute `number` of Model, attribute `list` of Model"):
        problem(code).inputs(0, 1)


def test_a_reference_that_answers_at_random_has_no_state_for_that() -> None:
    code = source(["number"], []).replace("return y", "return y + np.random.rand()")
    asked = problem(code)
    asked.inputs(0, 1)
    assert not asked.buffers
    asked = problem(code.replace("y = x\n", "y = x + 100 * self.number\n"))
    with pytest.raises(ReferenceFailure, match="attribute `number` of Model"):
        asked.inputs(0, 1)


def test_rounding_is_no_dependence() -> None:
    one = ([{"tensor": 0}], [torch.rand(100)])
    apart = dependence._distance
    assert apart(one, (one[0], [one[1][0] * (1 + 1e-7)])) == 0
    assert apart(one, (one[0], [one[1][0] * (1 + 1e-4)])) > 0
    assert apart(one, (one[0], [torch.full((100,), float("nan"))])) == float("inf")
    assert apart(one, ([{"tensor": 1}], one[1])) == float("inf")
    assert apart(one, (one[0], [torch.rand(99)])) == float("inf")
    ones = ([{"tensor": 0}], [torch.full((3,), 1000)])
    assert apart(ones, (ones[0], [torch.tensor([1000, 1000, 1001])])) == 1


def test_a_call_that_fails_after_another_depends_on_it() -> None:
    code = source(["number"], []).replace("return y", "assert self.number == 2\n        return y")
    with pytest.raises(ReferenceFailure, match="attribute `number` of Model"):
        problem(code).inputs(0, 1)


def test_a_reference_that_always_fails_says_so_itself() -> None:
    with pytest.raises(ReferenceFailure, match="reference: ValueError: no") as raised:
        problem(source([], []).replace("return y", "raise ValueError('no')")).inputs(0, 1)
    assert raised.value.stage == "reference"


def test_what_another_process_knows_is_not_tried_again() -> None:
    asked = problem(source(["buffer", "number"], ["buffer", "number"]))
    asked.know(["buffer"])
    asked.make_ready(TimedForm())
    (x,) = asked.inputs(0, 1)
    assert set(asked.timed(x)["buffers"]) == {"buffer"}
    plain = problem(source([], []))
    plain.know([])
    plain.make_ready(TimedForm())
    assert isinstance(plain.timed, torch.nn.Module), "nothing is added to a timed call without state"
