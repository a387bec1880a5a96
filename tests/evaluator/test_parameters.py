"""Secret parameters: the reference's constants are replaced, and the candidate gets the new values by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from kerneldyno.evaluator.judge.checks.candidate import match
from kerneldyno.evaluator.runner.parameters import Construction
from kerneldyno.evaluator.shared import tree
from kerneldyno.evaluator.toolkits import toolkits
from tests.evaluator import judge_harness
from tests.evaluator.judge_harness import Judge, request

CPU = torch.device("cpu")


def spec(*shape: int, dtype: str = "float32") -> tree.TensorSpec:
    return tree.describe(torch.empty(shape, dtype=getattr(torch, dtype)))


@pytest.mark.parametrize(
    ("wanted", "listing", "pairs"),
    [
        # By name, regardless of other tensors.
        ({"norm.weight": (8,), "norm.bias": (8,)}, {"norm.bias": (8,), "norm.weight": (8,)},
         {"norm.weight": "norm.weight", "norm.bias": "norm.bias"}),
        # A tensor of the same name but another shape does not match.
        ({"weight": (8,)}, {"weight": (4,)}, {}),
        # By the last part of the name.
        ({"norm.weight": (8,), "norm.bias": (8,)}, {"ln.bias": (8,), "ln.weight": (8,)},
         {"ln.weight": "norm.weight", "ln.bias": "norm.bias"}),
        # By the shape alone, in order, as a last resort.
        ({"gain": (8,)}, {"scale": (8,)}, {"scale": "gain"}),
        ({"a.weight": (8,), "b.weight": (8,)}, {"first": (8,), "second": (8,)},
         {"first": "a.weight", "second": "b.weight"}),
        # Not if there are several possibilities.
        ({"gain": (8,)}, {"scale": (8,), "other": (8,)}, {}),
        ({"a.gain": (8,), "b.gain": (8,)}, {"scale": (8,)}, {}),
        # Tensors that are paired by name are not available to others.
        ({"weight": (8,), "gain": (8,)}, {"weight": (8,), "scale": (8,)}, {"weight": "weight", "scale": "gain"}),
        ({}, {"scale": (8,)}, {}),
        ({"gain": (8,)}, {}, {}),
    ],
)  # fmt: skip
def test_match(wanted: dict[str, Any], listing: dict[str, Any], pairs: dict[str, str]) -> None:
    specs, theirs = ({name: spec(*shape) for name, shape in side.items()} for side in (wanted, listing))
    assert match(specs, theirs) == pairs


def test_match_needs_the_same_dtype() -> None:
    assert match({"weight": spec(8)}, {"weight": spec(8, dtype="float64")}) == {}


REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16).eval()
        self.linear = nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.full((4,), 3.0))
        self.register_buffer("step", torch.tensor(2.0))
        self.register_buffer("steps", torch.zeros(4, dtype=torch.int64))

    def forward(self, x):
        return self.linear(self.norm(x)) * self.scale

def get_inputs():
    return [torch.randn(8, 16)]
"""


def state(seed: int, **changes: Any) -> dict[str, torch.Tensor]:
    asked = judge_harness.spec("", reference_code=REFERENCE, stress_inputs=True, **changes)
    return toolkits()["kernelbench"].build(asked.problem, CPU, seed).state()


def test_constants_of_the_reference_are_replaced_and_nothing_else() -> None:
    replaced = state(7)
    names = {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "scale"}
    assert set(replaced) == names
    for name, base in (("norm.weight", 1.0), ("norm.running_var", 1.0), ("scale", 3.0)):
        assert 0.5 * base <= float(replaced[name].min()) < float(replaced[name].max()) <= 1.5 * base
    assert 0.1 < float(replaced["norm.bias"].abs().max()) <= 0.5


def test_values_are_secret_to_a_judge() -> None:
    first, again, second = state(7), state(7), state(8)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], second[name]) for name in first)


def test_nothing_is_replaced_without_stress() -> None:
    asked = judge_harness.spec("", reference_code=REFERENCE, stress_inputs=False)
    assert toolkits()["kernelbench"].build(asked.problem, CPU, 7).state() == {}


def construction(target: Any) -> Construction:
    arguments, _ = tree.flatten([])
    keywords, _ = tree.flatten({})
    return Construction(target, arguments, keywords, 5, CPU)


class Folded(nn.Module):
    """A candidate whose constructor folds the normalisation into a scale and a shift, which is allowed."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(4).eval()
        assert norm.running_var is not None
        assert norm.running_mean is not None
        self.norm = norm
        self.noise = nn.Parameter(torch.randn(4))
        self.gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        self.shift = norm.bias - norm.running_mean * self.gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain + self.shift


VALUES = {
    "norm.weight": torch.tensor([1.0, 0.5, 1.5, 0.7]),
    "norm.bias": torch.tensor([0.1, -0.2, 0.3, 0.4]),
    "norm.running_mean": torch.tensor([0.4, 0.3, -0.2, 0.1]),
    "norm.running_var": torch.tensor([0.6, 1.4, 1.1, 0.9]),
}


def test_constants_of_the_candidate_are_listed() -> None:
    made = construction(Folded)
    made.make()
    assert {name: tuple(description[1]) for name, description in made.constants()} == dict.fromkeys(VALUES, (4,))


def test_normalisation_layers_are_born_with_their_values() -> None:
    made = construction(Folded)
    noise = made.make().noise.clone()
    instance = made.make_with(VALUES)
    x = torch.randn(8, 4)
    with torch.no_grad():
        assert torch.allclose(instance(x), instance.norm(x), atol=1e-6)
        assert not torch.allclose(instance(x), x, atol=1e-2)
    assert all(torch.equal(instance.state_dict()[name], value) for name, value in VALUES.items())
    assert torch.equal(instance.noise, noise)  # drawn as in the first construction


def test_layers_outside_are_as_they_were() -> None:
    made = construction(Folded)
    made.make()
    made.make_with(VALUES)
    assert torch.equal(nn.LayerNorm(4).weight, torch.ones(4))
    mean = nn.BatchNorm1d(4).running_mean
    assert mean is not None
    assert not mean.any()


def test_a_failing_constructor_leaves_the_layers_as_they_were() -> None:
    def broken() -> None:
        nn.LayerNorm(4)
        raise ValueError("boom")

    before = nn.LayerNorm.reset_parameters
    with pytest.raises(ValueError, match="boom"):
        construction(broken).make()
    assert nn.LayerNorm.reset_parameters is before


def test_parameters_of_its_own_are_assigned_without_making_it_again() -> None:
    class Plain(nn.Module):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            Plain.made += 1
            self.gain = nn.Parameter(torch.ones(4))

    built = construction(Plain)
    built.make()
    instance = built.make_with({"gain": torch.arange(4.0)})
    assert torch.equal(instance.gain, torch.arange(4.0))
    assert Plain.made == 1


def test_what_is_no_module_has_no_parameters() -> None:
    class Bare:
        pass

    made = construction(Bare)
    instance = made.make()
    assert made.constants() == []
    assert made.make_with({}) is instance


# A module with wrong values gets the reference's values by name

_TWO = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn(8, {width})]
"""
_FORWARD = "return self.down(torch.relu(self.up(x)))"


def _module(made: str, forward: str = _FORWARD, name: str = "ModelNew", width: int = 32) -> str:
    return _TWO.format(name=name, made=made.replace("; ", "\n        "), forward=forward, width=width)


_UP, _DOWN = "self.up = nn.Linear(32, 48)", "self.down = nn.Linear(48, 32)"
_MLP = _module(f"{_UP}; {_DOWN}", name="Model")


def _judged(judge: Judge, code: str, reference: str = _MLP) -> dict[str, Any]:
    return judge.evaluate(request(code, reference_code=reference, backend="torch", stress_inputs=True))


def _evidence(result: dict[str, Any]) -> list[str]:
    return [finding["evidence"] for finding in result["findings"] if finding["id"] == "S29"]


def test_parameters_may_be_created_in_another_order(judge: Judge) -> None:
    result = _judged(judge, _module(f"{_DOWN}; {_UP}"))
    assert result["outcome"] == "CORRECT", result["message"]
    (evidence,) = _evidence(result)
    assert "down.bias, down.weight, up.bias, up.weight" in evidence
    assert result["correctness"]["passed_trials"] == result["correctness"]["total_trials"]


def test_what_is_packed_in_the_first_call_is_packed_again(judge: Judge) -> None:
    forward = (
        "self.packed = getattr(self, 'packed', None) if hasattr(self, 'packed') else self.up.weight.T.contiguous(); "
        "return self.down(torch.relu(x @ self.packed + self.up.bias))"
    ).replace("; ", "\n        ")
    result = _judged(judge, _module(f"{_DOWN}; {_UP}", forward))
    assert result["outcome"] == "CORRECT", result["message"]


def test_weights_that_are_changed_on_purpose_stay_so(judge: Judge) -> None:
    halved = f"{_UP}; self.up.weight.data.mul_(0.5); {_DOWN}"
    result = _judged(judge, _module(halved, "return self.down(torch.relu(x @ self.up.weight.T * 2 + self.up.bias))"))
    assert result["outcome"] == "CORRECT", result["message"]
    assert _evidence(result) == []


def test_a_wrong_candidate_stays_wrong_with_the_right_values(judge: Judge) -> None:
    result = _judged(judge, _module(f"{_DOWN}; {_UP}", "return self.down(self.up(x))"))
    assert result["outcome"] == "INCORRECT"
    assert "were given the reference's values" in _evidence(result)[0]


def test_other_names_are_named(judge: Judge) -> None:
    made = "self.second = nn.Linear(48, 32); self.first = nn.Linear(32, 48)"
    result = _judged(judge, _module(made, "return self.second(torch.relu(self.first(x)))"))
    assert result["outcome"] == "INCORRECT"
    (evidence,) = _evidence(result)
    assert "up.weight" in evidence
    assert "a tensor with the same name gets the same values" in evidence


def test_what_has_no_parameters_is_told_nothing(judge: Judge) -> None:
    assert _evidence(_judged(judge, _module("pass", "return x * 2"))) == []


def test_parameters_that_are_larger_than_the_inputs_come_in_parts(judge: Judge) -> None:
    up, down = "self.up = nn.Linear(1100, 1100)", "self.down = nn.Linear(1100, 1100)"
    turned = f"{down}; {up}; self.up.weight.data = self.up.weight.data.T.contiguous().T"
    result = _judged(judge, _module(turned, width=1100), _module(f"{up}; {down}", name="Model", width=1100))
    assert result["outcome"] == "CORRECT", result["message"]
    assert len(_evidence(result)) == 1


def test_a_module_that_cannot_be_made_again_is_as_wrong_as_before(judge: Judge) -> None:
    once = f"assert not hasattr(torch, 'made'); torch.made = True; {_DOWN}; {_UP}"
    result = _judged(judge, _module(once))
    assert result["outcome"] == "INCORRECT", result["message"]
    listing = f"{_DOWN}; {_UP}; self.state_dict = lambda *_, **__: 1 / 0"
    result = _judged(judge, _module(listing))
    assert result["outcome"] == "INCORRECT", result["message"]


def test_what_is_no_plain_array_is_left_out(judge: Judge) -> None:
    odd = "self.register_buffer('odd', torch.eye(3).to_sparse()); "
    reference = _module(f"{odd}{_UP}; {_DOWN}", name="Model")
    result = _judged(judge, _module(f"{_DOWN}; {odd}{_UP}"), reference)
    assert result["outcome"] == "CORRECT", result["message"]
    (evidence,) = _evidence(result)
    assert "odd" not in evidence


def test_packed_numbers_are_handed_over(judge: Judge) -> None:
    numbers = "torch.randint(0, 255, (8, 32), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)"
    packed = f"self.register_buffer('table', {numbers}); "
    forward = "return self.up(x)[:, :32] * self.table.view(torch.uint8).float()"
    reference = _module(f"{packed}{_UP}", forward, name="Model")
    result = _judged(judge, _module(f"{_UP}; {packed}".rstrip("; "), forward), reference)
    assert result["outcome"] == "CORRECT", result["message"]


def test_constants_are_not_missed_twice(judge: Judge) -> None:
    made, forward = "self.norm = nn.LayerNorm(32); self.out = nn.Linear(32, 8)", "return self.out(self.norm(x))"
    theirs = "self.other = nn.LayerNorm(32); self.last = nn.Linear(32, 8); self.last.weight.data.mul_(2)"
    result = _judged(judge, _module(theirs, "return self.last(self.other(x))"), _module(made, forward, name="Model"))
    assert result["outcome"] == "INCORRECT"
    (evidence,) = _evidence(result)
    assert "out.weight" in evidence
    assert "norm" not in evidence
