"""Any value that may pass between judge and runner: it arrives as it was, equals itself, and no changed leaf is missed."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kerneldyno.evaluator.judge.comparison.compare import compare, expect
from kerneldyno.evaluator.judge.comparison.evidence import Mismatch
from kerneldyno.evaluator.judge.comparison.structures import Precision, difference
from kerneldyno.evaluator.shared import small_floats, tree, wire
from kerneldyno.evaluator.shared.plain_tensors import DTYPES
from kerneldyno.evaluator.shared.spec import ToleranceRule
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator.judge_harness import Judge, request
from tests.sampling import count, examples

CPU = torch.device("cpu")
CALIBRATED = ToleranceRule(pb.Tolerance.PRESET_CALIBRATED, None, None)

Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Record:
    value: Any
    other: Any


_SHAPES = st.sampled_from([(), (1,), (3,), (0,), (2, 0, 3), (2, 3), (4, 2), (1, 1, 2)])


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a tensor of random bits that are numbers; a transposed one for odd seeds."""
    shape = (*shape[:-1], shape[-1] * dtype.itemsize) if shape else (dtype.itemsize,)
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, shape, generator=torch.Generator().manual_seed(seed))
    made = bits.to(torch.uint8).view(dtype)
    made = made if len(shape) > 1 or shape[0] != dtype.itemsize else made[0]
    return made.t() if seed % 2 and made.dim() == 2 else made


TENSORS = st.builds(_tensor, st.sampled_from(sorted(DTYPES, key=str)), _SHAPES, st.integers(0, 1 << 20))
NUMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from([torch.float16, torch.int8, CPU]),
)
KEYS = st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3), st.tuples(st.integers(0, 3), st.text(max_size=1)))


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(KEYS, parts, max_size=3),
        st.builds(Pair, parts, parts),
        st.builds(Record, parts, parts),
    )


VALUES = st.recursive(TENSORS | NUMBERS, _containers, max_leaves=8)


def passed(structure: Any) -> Any:
    """Return a structure as it arrives in another process."""
    return wire.decode(wire.encode({"structure": structure})[4:])["structure"]


def stored(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors as they lie in an output slot."""
    specs = [tree.describe(tensor, keep_layout=False) for tensor in tensors]
    region = torch.zeros(tree.layout(specs)[1], dtype=torch.uint8)
    for view, tensor in zip(tree.views(region, specs), tensors, strict=True):
        small_floats.raw(view).copy_(small_floats.raw(tensor))
    return tree.views(region, specs)


def mismatch(expected: Any, got: Any) -> Mismatch | None:
    structure, values = tree.flatten(expected)
    other, given_values = tree.flatten(got)
    specs = [tree.describe(value, keep_layout=False) for value in given_values]
    return compare(expect(structure, values, None), passed(other), specs, stored(given_values), CALIBRATED).mismatch


def reordered(value: Any) -> Any:
    """Return an equal value whose dicts were filled in the opposite order."""
    if isinstance(value, Pair):
        return Pair(*map(reordered, value))
    if isinstance(value, list | tuple):
        return type(value)(map(reordered, value))
    if isinstance(value, dict):
        return {key: reordered(part) for key, part in reversed(value.items())}
    return Record(reordered(value.value), reordered(value.other)) if isinstance(value, Record) else value


def changed(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a value with all its leaves replaced."""
    if hasattr(value, "_fields"):
        return type(value)(*(changed(part, leaf) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(changed(part, leaf) for part in value)
    if isinstance(value, dict):
        return {key: changed(part, leaf) for key, part in value.items()}
    if dataclasses.is_dataclass(value):
        return type(value)(**{name: changed(getattr(value, name), leaf) for name in ("other", "value")})
    return leaf(value)


def leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    changed(value, found.append)
    return found


def another(leaf: Any) -> Any:
    """Return a leaf of the same type and a clearly different value; None if there is none."""
    if isinstance(leaf, torch.Tensor):
        if not leaf.numel():
            return None
        other = leaf.contiguous().clone()
        flat = small_floats.raw(other).reshape(-1)
        where = len(flat) // 2
        if leaf.dtype is torch.float4_e2m1fn_x2:
            flat[where] = 0x77 if flat[where] & 8 else 0xFF  # twice the largest number of the other sign
        elif small_floats.is_coded(leaf.dtype):
            flat[where] = 1.0 if bool(flat[where].float().isnan()) else float("nan")
        elif leaf.dtype is torch.bool:
            flat[where] = ~flat[where]
        elif leaf.is_floating_point() or leaf.is_complex():
            now = flat[where].to(torch.complex128)
            finite = math.isfinite(now.real) and math.isfinite(now.imag)
            flat[where] = float("nan") if finite else 1.0
        else:
            signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[leaf.dtype.itemsize]
            flat.view(signed)[where] ^= 1
        return other
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return leaf + 1
    if isinstance(leaf, float):
        return 1.0 if math.isnan(leaf) else float("nan")
    if isinstance(leaf, complex):
        return complex(float("nan"), 0.0)
    if isinstance(leaf, str):
        return leaf + "x"
    return 5 if leaf is None else torch.float64


@pytest.mark.pure
@settings(max_examples=examples(200), deadline=None)
@given(VALUES)
def test_values_arrive_as_they_were(value: Any) -> None:
    structure, tensors = tree.flatten(value)
    back = tree.rebuild(passed(structure), tensors, CPU)
    assert tree.flatten(back)[0] == structure or str(tree.flatten(back)[0]) == str(structure)  # NaN
    assert [id(leaf) for leaf in leaves(back) if isinstance(leaf, torch.Tensor)] == [
        id(leaf) for leaf in leaves(value) if isinstance(leaf, torch.Tensor)
    ]
    for view, tensor in zip(stored(tensors), tensors, strict=True):
        assert view.dtype == tensor.dtype
        raw, given_bits = (each.contiguous().reshape(-1).view(torch.uint8) for each in (view, tensor))
        assert torch.equal(raw, given_bits)


@pytest.mark.pure
@settings(max_examples=examples(200), deadline=None)
@given(VALUES)
def test_an_equal_value_is_right_in_any_order_of_keys(value: Any) -> None:
    assert mismatch(value, value) is None
    assert mismatch(value, reordered(value)) is None


@pytest.mark.pure
@settings(max_examples=examples(300), deadline=None)
@given(VALUES, st.integers(0, 100))
def test_a_changed_leaf_is_found(value: Any, which: int) -> None:
    found = leaves(value)
    assume(found)
    at = which % len(found)
    replacement = another(found[at])
    assume(replacement is not None)
    position = iter(range(len(found)))
    other = changed(value, lambda leaf: replacement if next(position) == at else leaf)
    assert mismatch(value, other) is not None


@pytest.mark.pure
@settings(max_examples=examples(200), deadline=None)
@given(
    VALUES,
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9), lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(st.sampled_from(["tensor", "tuple", "dict", "namedtuple", "dataclass", "complex", "x"]), parts)
    ), max_leaves=12),
)  # fmt: skip
def test_whatever_a_runner_says_is_compared(value: Any, said: Any) -> None:
    """A structure is JSON that a candidate may have written."""
    structure, _ = tree.flatten(value)
    found = difference(structure, said, Precision(CALIBRATED, torch.float32))
    assert found is None or found.kind in ("structure", "values")
    kept = difference({"tuple": [structure, 1]}, said, Precision(CALIBRATED, torch.float32))
    assert kept is not None


MODULE = """
import collections, dataclasses
import torch

Pair = collections.namedtuple("Pair", ["first", "second"])

@dataclasses.dataclass
class Record:
    value: object
    other: object

class {name}(torch.nn.Module):
    def forward(self, x, kept):
        return ({returned}, x * 2, kept)

def get_inputs():
    return [torch.randn(4, 6), {inputs}]
"""


def source(value: Any) -> str:
    """Return Python code that makes a value."""
    if isinstance(value, torch.Tensor):
        bits = small_floats.raw(value).contiguous().reshape(-1).view(torch.uint8).tolist()
        return f"torch.tensor({bits}, dtype=torch.uint8).view({value.dtype}).reshape({tuple(value.shape)})"
    if isinstance(value, Pair | Record):
        first, second = value if isinstance(value, Pair) else (value.value, value.other)
        return f"{type(value).__name__}({source(first)}, {source(second)})"
    if isinstance(value, list):
        return f"[{', '.join(map(source, value))}]"
    if isinstance(value, tuple):
        return f"({''.join(source(part) + ', ' for part in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {source(part)}" for key, part in value.items()) + "}"
    if isinstance(value, float):
        return f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex(float({str(value.real)!r}), float({str(value.imag)!r}))"
    return f"torch.device({value.type!r})" if isinstance(value, torch.device) else repr(value)


def _has_dataclass(value: Any) -> bool:
    try:
        tree.flatten(value, are_arguments=True)
    except tree.UnsupportedValueError:
        return True
    return False


@settings(max_examples=count(25, 6), deadline=None)
@given(value=VALUES, kept=VALUES)
def test_a_real_judge_passes_and_compares_them(judge: Judge, value: Any, kept: Any) -> None:
    assume(not _has_dataclass(kept))
    reference, alike, inputs = source(value), source(reordered(value)), source(kept)
    # torch cannot copy some formats on a device other than the CPU, and packed pairs nowhere.
    assume(not any(isinstance(leaf, torch.Tensor) and "float4" in str(leaf.dtype) for leaf in leaves([value, kept])))
    fields = {"backend": "torch", "stress_inputs": False, "num_correct_trials": 1}
    right = MODULE.format(name="ModelNew", returned=alike, inputs=inputs)
    wrong = MODULE.format(name="ModelNew", returned=f"[{alike}]", inputs=inputs)
    code = MODULE.format(name="Model", returned=reference, inputs=inputs)
    result = judge.evaluate(request(right, reference_code=code, **fields))
    assert result["outcome"] == "CORRECT", (result["message"], code)
    result = judge.evaluate(request(wrong, reference_code=code, **fields))
    assert result["outcome"] == "INCORRECT", (result["message"], code)
