"""What references, candidates and get_inputs() return besides plain tensors, with a real judge."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.evaluator.judge_harness import Judge, request

MODULE = """
import collections, dataclasses, enum, random
import numpy as np
import itertools
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

Pair = collections.namedtuple("Pair", ["first", "second"])
Turned = collections.namedtuple("Turned", ["second", "first"])

@dataclasses.dataclass(frozen=True)
class Record:
    value: object
    count: object

class Colour(enum.Enum):
    RED = 1

class Sub(torch.Tensor):
    pass

def emptied(x):
    y = x * 2
    y.untyped_storage().resize_(0)
    return y

def escaped(x):
    kept = []
    torch.vmap(lambda row: (kept.append(row), row)[1])(x)
    return kept[0]

def itself(x):
    kept = [x]
    kept.append(kept)
    return kept

def number_of(x):
    return int((x > 0.5).sum())

class NAME(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4, 6))
        self.turns = itertools.count(1)  # not among what is looked at as state

    def forward(self, x, *more):
        calls = next(self.turns)
        return RETURNED

def get_inputs():
    x = torch.randn(4, 6)
    return [INPUTS]
"""

#: What a reference returns, what an equal candidate returns instead, and what a wrong one returns.
ALIKE: dict[str, tuple[str, str, str]] = {
    "an int beside a tensor": ("(x * 1, number_of(x) + 100000)", "", "(x * 1, number_of(x) + 100003)"),
    "an int": ("number_of(x)", "", "number_of(x) + 1"),
    "a large int": ("2**62 + number_of(x)", "", "2**62 + 1 + number_of(x)"),
    "an int is no float": ("(x * 1, 3)", "", "(x * 1, 3.0)"),
    "an int is no bool": ("(x * 1, 1)", "", "(x * 1, True)"),
    "a bool": ("(x * 1, bool(x.sum() > 0))", "", "(x * 1, bool(x.sum() <= 0))"),
    "a float": ("(x * 2, float(x.sum()))", "(x * 2, float(x.double().sum()))", "(x * 2, float(x.sum()) * 1.001)"),
    "a float of few bits": ("(x.bfloat16(), float(x.exp().sum()))", "(x.bfloat16(), 1.01 * float(x.exp().sum()))",
                            "(x.bfloat16(), 1.05 * float(x.exp().sum()))"),
    "not a number": ("(x * 2, float('nan'))", "", "(x * 2, 0.0)"),
    "infinity": ("(x * 2, float('-inf'))", "", "(x * 2, float('inf'))"),
    "a complex number": ("(x * 2, complex(float(x[0, 0]), 2))", "", "(x * 2, complex(float(x[0, 0]), -2))"),
    "a string": ("(x * 2, 'sum')", "", "(x * 2, 'Sum')"),
    "None": ("(x * 2, None)", "", "(x * 2, 0)"),
    "a NumPy scalar": ("(x * 2, np.int64(number_of(x)))", "(x * 2, number_of(x))", "(x * 2, np.float32(1))"),
    "a size": ("(x * 2, x.shape)", "(x * 2, (4, 6))", "(x * 2, (4, 7))"),
    "a dtype and a device": ("(x * 2, x.dtype, x.device)", "", "(x * 2, torch.float64, x.device)"),
    "a dict in any order": ("{'b': x + 1, 'a': x - 1}", "{'a': x - 1, 'b': x + 1}", "{'a': x + 1, 'b': x - 1}"),
    "keys of many types": ("{None: x, (1, 2): x + 1, 1.5: x + 2}", "{1.5: x + 2, None: x * 1, (1, 2): x + 1}",
                           "{1.5: x + 1, None: x, (1, 2): x + 2}"),
    "a namedtuple": ("Pair(x + 1, x - 1)", "(x + 1, x - 1)", "Turned(x + 1, x - 1)"),
    "a tuple": ("(x + 1, x - 1)", "Pair(x + 1, x - 1)", "Pair(x - 1, x + 1)"),
    "a dataclass": ("Record(x + 1, number_of(x))", "", "Record(x + 1, number_of(x) + 1)"),
    "no tuple for a dataclass": ("Record(x + 1, 3)", "", "(3, x + 1)"),
    "a result of max": ("x.max(dim=1)", "tuple(x.max(dim=1))", "tuple(x.min(dim=1))"),
    "nothing": ("None", "", "x"),
    "no parts": ("()", "", "[]"),
    "a conjugate": ("torch.complex(x, x + 1).conj()", "torch.complex(x, -x - 1)", "torch.complex(x, x + 1)"),
    "a negated view": ("torch.complex(x, x + 1).conj().imag", "-x - 1", "x + 1"),
    "a parameter": ("self.weight", "self.weight * 1", "self.weight * 2"),
    "large whole numbers": ("(x > 0).long() + 2**60", "", "(x > 0).long() + 2**60 + 1"),
    "as many as there are": ("torch.nonzero(x > 0)", "", "torch.nonzero(x > 0) + 1"),
}  # fmt: skip

#: What cannot be returned, and what the message says.
REFUSED: dict[str, tuple[str, str]] = {
    "meta": ("x.to('meta')", 'on the device "meta"'),
    "fake": ("FakeTensorMode().from_tensor(x)", "class FakeTensor"),
    "sparse": ("x.to_sparse()", r"a sparse tensor (layout torch.sparse_coo); use a dense one: call .to_dense()"),
    "compressed": ("x.to_sparse_csr()", "layout torch.sparse_csr"),
    "of oneDNN": ("x.cpu().to_mkldnn()", "a oneDNN tensor"),
    "nested": ("torch.nested.nested_tensor([x[0], x[1]])", "a nested tensor"),
    "jagged": ("torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)", "class NestedTensor"),
    "quantised": ("torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)", "a quantised tensor (dtype torch.quint8)"),
    "without memory": ("emptied(x)", "whose memory was released: its elements need 96 bytes, and 0 are left"),
    "of a transform": ("escaped(x)", "inside of a function transform"),
    "functional": ("torch._to_functional_tensor(x)", "inside of a function transform"),
    "of a subclass": ("x.as_subclass(Sub)", "a tensor of class Sub"),
    "of four bits": ("torch.empty(3, dtype=torch.int4)", "dtype torch.int4"),
    "a set": ("{1, 2}", "type set; a set has no order"),
    "bytes": ("b'bytes'", "type bytes; use a tensor of dtype torch.uint8"),
    "an array": ("x.cpu().numpy()", "type ndarray; use a tensor: torch.from_numpy(...)"),
    "an enum member": ("(x, Colour.RED)", "type Colour; use its value: .value"),
    "a generator": ("(y for y in [x])", "type generator; use a list of its parts"),
    "an object": ("object()", "type object"),
    "a list in itself": ("itself(x)", "one that contains itself"),
    "a huge integer": ("(x, 1 << 5000)", "an integer of 5001 bits"),
    "too many parts": ("[0] * 20000", "more than 10000 parts"),
    "a tensor as a key": ("{x: 1, 2: 3}", "a dict with a tensor in a key"),
}

#: What get_inputs() may return beside x, and what a reference makes of it.
INPUTS: dict[str, tuple[str, str]] = {
    "a namedtuple": ("x, Pair(x + 1, 2)", "x * more[0].first + more[0].second"),
    "a dict in its order": ("x, {'b': x, 'a': x + 1}", "x - list(more[0].values())[0] * 2"),
    "numbers": (
        "x, float('nan'), float('inf'), 3 + 4j, 2**70",
        "x * more[2].imag + (more[3] == 2**70) + (more[1] > 9)",
    ),
    "a conjugate": ("x, torch.complex(x, x).conj()", "more[0] * 2"),
    "slices": ("x[::2], x[:, 1:].t(), x[0].expand(3, 6)", "(x * 2, more[0] + 1, more[1].sum())"),
    "empty": ("x, torch.empty(0, 3), torch.tensor(2.0)", "(x * more[1], more[0] * 2)"),
}


def module(name: str, returned: str, inputs: str = "x") -> str:
    return MODULE.replace("NAME", name).replace("RETURNED", returned).replace("INPUTS", inputs)


def judged(judge: Judge, reference: str, candidate: str, inputs: str = "x", **fields: Any) -> dict[str, Any]:
    changes = {"backend": "torch", "stress_inputs": True, "num_correct_trials": 1, **fields}
    code = module("ModelNew", candidate or reference, inputs)
    return judge.evaluate(request(code, reference_code=module("Model", reference, inputs), **changes))


@pytest.mark.parametrize("name", ALIKE)
def test_values_are_compared_by_type(judge: Judge, name: str) -> None:
    reference, alike, wrong = ALIKE[name]
    result = judged(judge, reference, alike)
    assert result["outcome"] == "CORRECT", result["message"]
    result = judged(judge, reference, wrong)
    assert result["outcome"] == "INCORRECT", result["message"]


@pytest.mark.parametrize("name", REFUSED)
def test_other_values_are_refused_by_name(judge: Judge, name: str) -> None:
    """Also a candidate's. A tensor that may run code when it is used counts as a cheat there."""
    returned, said = REFUSED[name]
    result = judged(judge, returned, "x")
    assert (result["outcome"], said in result["message"]) == ("REFERENCE_ERROR", True), result["message"]
    assert "the reference returned" in result["message"]
    result = judged(judge, "x * 1", returned)
    assert result["outcome"] in ("RUNTIME_ERROR", "REJECTED"), result["message"]
    evidence = result["runtime_error"]["exception"]["message"] if "runtime_error" in result else str(result["findings"])
    assert said.split(";")[0] in evidence, result


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "too many parts"])
def test_inputs_of_such_kinds_are_refused_by_name(judge: Judge, name: str) -> None:
    returned, said = REFUSED[name]
    result = judged(judge, "x * 1", "x * 1", f"x, {returned}")
    assert result["outcome"] == "REFERENCE_ERROR", result["message"]
    assert said in result["message"]


def test_a_dataclass_is_no_input(judge: Judge) -> None:
    result = judged(judge, "x * 1", "x * 1", "x, Record(x, 3)")
    assert result["outcome"] == "REFERENCE_ERROR"
    assert "get_inputs() returned a dataclass (Record)" in result["message"]


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_arrive_as_they_are(judge: Judge, name: str) -> None:
    inputs, returned = INPUTS[name]
    result = judged(judge, returned, "", inputs)
    assert result["outcome"] == "CORRECT", result["message"]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (
            "x[:, : calls % 2 + 1] * 1",
            r"a float32 tensor of shape \(4, (1|2)\), and then a float32 tensor of shape \(4, (1|2)\)",
        ),
        ("x if calls % 2 else (x, 3)", "returned values of different kinds"),
        ("x.float() if calls % 2 else x.double()", r"and then a float(32|64) tensor"),
    ],
)
def test_a_form_that_changes_from_call_to_call_is_the_references_fault(judge: Judge, returned: str, said: str) -> None:
    result = judged(judge, returned, "x")
    assert result["outcome"] == "REFERENCE_ERROR", result["message"]
    assert "called twice with the same inputs, the reference" in result["message"]
    assert re.search(said, result["message"])


@pytest.mark.alone
@pytest.mark.parametrize("returned", ["torch.nonzero(more[0] > 0)", "more[0][more[0] > 0.3]", "number_of(x)", "None"])
def test_outputs_of_any_size_are_timed(judge: Judge, returned: str) -> None:
    """The sizes of the first two differ by several slots' alignment from draw to draw."""
    result = judged(judge, returned, "", "x, torch.randn(96, 96)", run_performance=True, num_correct_trials=4)
    assert result["outcome"] == "CORRECT", result["message"]
    assert result["candidate_timing"]


def test_dicts_in_any_order_with_gradients(judge: Judge) -> None:
    reference, alike = "{'b': x * self.weight, 'a': x.sum()}", "{'a': x.sum(), 'b': x * self.weight}"
    result = judged(judge, reference, alike, backward=True)
    assert result["outcome"] == "CORRECT", result["message"]
    result = judged(judge, reference, "{'a': x.sum(), 'b': (x * self.weight).detach() + 0 * x}", backward=True)
    assert result["outcome"] == "INCORRECT", result["message"]
