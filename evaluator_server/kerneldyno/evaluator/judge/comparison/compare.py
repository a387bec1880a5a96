"""Compare what a candidate left in the judge's memory with what is right: structure, dtype, shape, every element.

These are pure functions on tensors that the judge owns. The calibrated rule allows for each element an error of

    rtol * (|expected| + typical(expected)) + 8 * noise

Here `typical` is the size of most elements, and a few outliers do not change it. The noise is the reference's own
largest rounding error against a float64 run, or the effect of arithmetic of the allowed precision on that run. The
noise scales with the output, so zeros never pass for small values, and an honest float32 product of any length passes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...shared import gradients, small_floats
from ...shared.enums import Preset
from ...shared.spec import ToleranceRule
from ...shared.tree import TensorSpec, describe, position
from ..runners.work import numbers
from .by_code import compare_codes
from .evidence import Comparison, Mismatch
from .rules import Bounds, bounds, relative_tolerance
from .structures import Precision, difference

#: Multiples of the error of rounded operands that are allowed: for a single element (times the factor above), and for
#: the root mean square of all.
_ROUNDINGS = 2.0
_COARSE = 5.0
#: If a float64 run is further off than this, relative to the output, it is no twin of the reference.
_MOST_ROUNDING = 0.05
#: Number of elements that are compared at a time, so that float64 copies stay small.
_CHUNK = 1 << 24
#: A mean square below this may come from elements whose squares float32 cannot represent.
_LEAST_SQUARE = 1e-32
#: Largest number in results; JSON has no infinity.
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Leaf:
    """One expected tensor: `value` from the reference, `truth` in float64 if that exists, and its noise."""

    spec: TensorSpec
    value: torch.Tensor
    truth: torch.Tensor
    noise: float
    #: The noise of float32 arithmetic, relative to the element and the typical size of elements.
    relative_noise: float
    #: Size of most elements: the root mean square, or twice the mean if a few outliers make the former larger.
    typical: float
    #: Root mean square of the effect of rounding operands to the allowed precision; 0 if no coarser one is allowed.
    rounding: float = 0.0
    #: True if the noise was measured: against a float64 twin of all or of some rows, or against another run.
    noise_known: bool = False

    @property
    def has_twin(self) -> bool:
        """True if the truth is a float64 twin's."""
        return self.truth is not self.value


@dataclass(frozen=True, slots=True)
class Expected:
    """A whole expected return value."""

    structure: Any
    leaves: Sequence[Leaf]
    #: The noise of each float in the structure (`structures.floats`).
    number_noise: Sequence[float] = ()

    @property
    def number_dtype(self) -> torch.dtype:
        """Return the dtype by whose rule floats are compared: the coarsest of the output's tensors, or else float32."""
        dtypes = [leaf.spec.torch_dtype for leaf in self.leaves if is_measured(leaf.value)]
        return max(dtypes, key=relative_tolerance, default=torch.float32)

    @property
    def names(self) -> list[str]:
        """Return the name of each leaf in results."""
        if named := gradients.names(self.structure):
            return named
        return ["output"] if len(self.leaves) == 1 else [f"output[{index}]" for index in range(len(self.leaves))]

    def as_noisy_as(self, other: Expected) -> Expected:
        """Return this with the noise of another answer.

        Twice its noise, if that answer has a twin: then the reference's own output stands for the truth here.
        """
        if len(self.leaves) != len(other.leaves):
            return self
        pairs = zip(self.leaves, other.leaves, strict=True)
        leaves = [replace(leaf, noise=like.noise * (1 + like.has_twin)) for leaf, like in pairs]
        return Expected(self.structure, leaves, [2 * noise for noise in other.number_noise])

    def outline(self) -> Expected:
        """Return this without the tensors: what outputs look like, and how noisy they are."""
        nothing = torch.empty(0)
        leaves = [
            replace(leaf, value=nothing, truth=torch.empty(0) if leaf.has_twin else nothing) for leaf in self.leaves
        ]
        return replace(self, leaves=leaves)

    def element_by_element(self) -> Expected:
        """Return this without knowledge about all elements together, which holds only for inputs like the timed ones."""
        return replace(self, leaves=[replace(leaf, rounding=0.0) for leaf in self.leaves])


def expect(
    structure: Any,
    values: Sequence[torch.Tensor],
    precise: Sequence[torch.Tensor] | None,
    others: Sequence[Sequence[torch.Tensor]] = (),
    rounded: Sequence[torch.Tensor] = (),
    allowed: float = math.inf,
) -> Expected:
    """Make an Expected from the reference's output and, if there is one, its float64 twin.

    Args:
        structure: The structure of the output.
        values: The reference's output.
        precise: The float64 twin.
        others: Twins on inputs that were moved by as much as arithmetic may be wrong. Their difference is allowed as
            well.
        rounded: The twin on operands of the precision that the request allows. Its difference is allowed more than
            once, because arithmetic also rounds intermediate results, and hardware truncates where this rounds.
        allowed: Largest difference of `others` that is allowed, relative to the outputs. A larger one means that a step
            was crossed, and rounding does not excuse that.
    """
    leaves = []
    for index, value in enumerate(values):
        truth, noise, relative, typical, rounding = value, 0.0, 0.0, None, 0.0
        if precise is not None and index < len(precise) and is_measured(value):
            twin = precise[index]
            if twin.shape == value.shape and twin.dtype == torch.float64:
                root_mean_square, mean = _moments(twin)
                size = _typical(root_mean_square, mean)
                moved, tier = (
                    [run[index] for run in runs if index < len(run) and run[index].shape == twin.shape]
                    for runs in (others, [rounded])
                )
                (error, share), *found = _off([value, *moved, *tier], twin, size)
                # A twin that disagrees by more than rounding is a different function (random layers, dtype branches).
                # If a few elements are far larger than most, their rounding may be as large as most elements.
                if error <= _MOST_ROUNDING * root_mean_square or _all(
                    value.double().sub(twin).abs_() <= _MOST_ROUNDING * (twin.abs() + root_mean_square)
                ):
                    truth, typical, noise = twin, size, error
                    relative = max(share, *(relative for _, relative in found), 0.0)
                    noise = max(noise, *(largest for largest, each in found[: len(moved)] if each <= allowed), 0.0)
                    if tier:
                        noise = max(noise, _ROUNDINGS * found[-1][0])
                        rounding = _moments(tier[0].sub(twin))[0]
        if typical is None:
            typical = _typical(*_moments(truth))
        spec = describe(value, keep_layout=False)
        leaves.append(Leaf(spec, value, truth, noise, relative, typical, rounding, noise_known=truth is not value))
    return Expected(structure, leaves)


def expect_like(
    value: torch.Tensor,
    noise: float = 0.0,
    *,
    relative_noise: float = 0.0,
    rounding: float = 0.0,
    noise_known: bool = False,
    typical: float | None = None,
) -> Leaf:
    """Make a Leaf whose truth is the reference's own output, with what is known about its noise."""
    if typical is None:
        typical = _typical(*_moments(value))
    spec = describe(value, keep_layout=False)
    return Leaf(spec, value, value, noise, relative_noise, typical, rounding, noise_known)


def differences(value: torch.Tensor, other: torch.Tensor, typical: float) -> tuple[float, float]:
    """Return the largest difference, and the largest one relative to the element and the `typical` size of elements.

    Differences that are not finite count as 0, as for `expect`.
    """
    # This lower bound is representable in the compared dtypes, and avoids a division by 0.
    bounds = max(typical, 1e-300 if other.dtype == torch.float64 else 1e-37), 1.0
    got, wanted = value.reshape(-1), other.reshape(-1)
    found = _looked_at(_errors_of_parts(got, wanted, bounds))
    if not all(map(math.isfinite, itertools.chain(*found))):  # one pass over all says nothing about the finite chunks
        found = _looked_at(_errors_of_chunks(got, wanted, bounds))
    finite = [(error, share) for error, share in found if math.isfinite(error) and math.isfinite(share)]
    return max((error for error, _ in finite), default=0.0), max((share for _, share in finite), default=0.0)


def is_measured(tensor: torch.Tensor) -> bool:
    """Return True if the errors of elements can be measured: floats of more than eight bits."""
    return tensor.is_floating_point() and not small_floats.is_coded(tensor.dtype)


def all_finite(tensor: torch.Tensor) -> bool:
    """Return True if all elements are finite. Their sum nearly always shows it."""
    tensor = small_floats.widened(tensor)
    if not tensor.is_complex() and math.isfinite(numbers(tensor.sum())):
        return True
    return _all(torch.isfinite(tensor))


def compare(
    expected: Expected,
    structure: Any,
    specs: Sequence[TensorSpec],
    values: Sequence[torch.Tensor],
    rule: ToleranceRule,
) -> Comparison:
    """Compare a returned value, described by `structure` and `specs` and stored in `values`, with `expected`."""
    result = Comparison()
    precision = Precision(rule, expected.number_dtype, expected.number_noise)
    result.mismatch = difference(expected.structure, structure, precision)
    if result.mismatch:
        return result
    if len(specs) != len(expected.leaves):  # an honest harness describes all tensors of its structure
        detail = f"{len(specs)} tensors are described, expected {len(expected.leaves)}"
        result.mismatch = Mismatch("output", "structure", detail)
        return result
    names = expected.names
    for index, (leaf, spec) in enumerate(zip(expected.leaves, specs, strict=True)):
        for kind, got, wanted in (
            ("shape", spec.shape, leaf.spec.shape),
            ("dtype", spec.dtype, leaf.spec.dtype),
            ("device", spec.on_device, leaf.spec.on_device),
        ):
            if got != wanted:
                result.mismatch = Mismatch(names[index], kind, f"{kind} {got}, expected {wanted}")
                return result
    # Outputs before gradients and buffers, which depend on them.
    for index in sorted(range(len(names)), key=lambda at: not names[at].startswith("output")):
        _compare_leaf(result, names[index], expected.leaves[index], values[index], rule)
        if result.mismatch:
            return result
    return result


def beyond(leaf: Leaf, value: torch.Tensor, rule: ToleranceRule) -> torch.Tensor:
    """Return which elements of `value` (floats of more than eight bits) are out of tolerance, shaped like it."""
    truth = leaf.truth.double()
    error = (value.double() - truth).abs_()
    return ~((error <= _bounds(leaf, rule).allowed(truth.abs())) | (value == leaf.value))


def _compare_leaf(result: Comparison, name: str, leaf: Leaf, value: torch.Tensor, rule: ToleranceRule) -> None:
    total = leaf.value.numel()
    if not total:
        return
    if small_floats.is_coded(leaf.value.dtype):
        if rule.preset == Preset.CALIBRATED:
            compared = compare_codes(name, leaf.value, value, leaf.typical)
            result.mismatch = compared.mismatch
            result.max_abs_error = max(result.max_abs_error, compared.max_abs_error)
            result.max_error_ratio = max(result.max_error_ratio, compared.max_error_ratio)
            return
        value, leaf = small_floats.widened(value), _widened(leaf)
        total = leaf.value.numel()
    flat_value, flat_truth = value.reshape(-1), leaf.truth.reshape(-1)
    allowance = _bounds(leaf, rule)
    # A sum bounds more errors than the larger summand, so the shortcut is not for the latter.
    if not allowance.either and _all_within(result, flat_value, flat_truth, (allowance.absolute, allowance.relative)):
        # This is nearly always the case, and takes a fraction of the time of finding what is wrong.
        result.mismatch = _too_coarse(name, leaf, flat_value, flat_truth, rule)
        return
    wrong = 0
    worst_ratio, worst_error, worst_index = 0.0, 0.0, 0
    non_finite = False
    for start in range(0, total, _CHUNK):
        got = _wide(flat_value[start : start + _CHUNK])
        truth = _wide(flat_truth[start : start + _CHUNK])
        error = (got - truth).abs()
        if got.is_complex() or leaf.value.is_floating_point():
            same = (got == truth) | (torch.isnan(got) & torch.isnan(truth))
        else:  # integers may be equal as float64 and still differ
            same = _bits(flat_value[start : start + _CHUNK]) == _bits(flat_truth[start : start + _CHUNK])
            error = error.clamp_min(1.0)
        error = torch.where(same, 0.0, error)
        allowed = allowance.allowed(truth.abs())
        # A difference that is not finite counts as the largest error. If the truth itself is not finite, only `same` is
        # right.
        broken = ~torch.isfinite(error) | (~torch.isfinite(truth) & ~same)
        ratio = torch.where(error == 0, 0.0, error / allowed.clamp_min(1e-300))
        ratio = torch.where(broken, _LARGEST, ratio)
        wrong += int((ratio > 1).sum())
        top, where = ratio.max(0)
        if float(top) > worst_ratio:
            worst_ratio, worst_index = float(top), start + int(where)
        worst_error = max(worst_error, _largest(torch.where(broken, 0.0, error)))  # errors are never negative
        non_finite = non_finite or bool((broken & ~torch.isfinite(got)).any())
    result.max_abs_error = max(result.max_abs_error, worst_error)
    result.max_error_ratio = min(max(result.max_error_ratio, worst_ratio), _LARGEST)
    result.matched_share = min(result.matched_share, 1 - wrong / total)
    if wrong and (non_finite or 1 - wrong / total < allowance.share):
        result.mismatch = Mismatch(
            output=name,
            kind="non-finite" if non_finite else "values",
            detail=f"{wrong} of {total} elements of {name} are out of tolerance"
            + (", some of them not finite" if non_finite else ""),
            mismatched_elements=wrong,
            total_elements=total,
            max_abs_error=worst_error,
            max_error_ratio=min(worst_ratio, _LARGEST),
            worst_index=tuple(position(worst_index, leaf.spec.shape)),
        )


def _widened(leaf: Leaf) -> Leaf:
    value = small_floats.widened(leaf.value)
    return replace(leaf, spec=describe(value, keep_layout=False), value=value, truth=value)


def _too_coarse(
    name: str, leaf: Leaf, value: torch.Tensor, truth: torch.Tensor, rule: ToleranceRule
) -> Mismatch | None:
    """Return a mismatch if coarser arithmetic than the allowed one has passed the tolerance of single elements.

    Single elements show the difference only by chance; all of them together show it reliably (the error of bfloat16 is
    eight times that of TF32).
    """
    if not leaf.rounding or rule.preset != Preset.CALIBRATED:
        return None
    error = _moments(value.double() - truth)[0]
    limit = _COARSE * leaf.rounding + relative_tolerance(leaf.value.dtype) * leaf.typical
    if error <= limit:
        return None
    detail = f"the errors of {name} are {error / leaf.rounding:.1f} times those of the allowed precision"
    return Mismatch(name, "precision", detail, max_error_ratio=error / limit)


def _bounds(leaf: Leaf, rule: ToleranceRule) -> Bounds:
    """Return the errors allowed for the elements of `leaf`."""
    return bounds(rule, leaf.value.dtype, leaf.typical, leaf.noise)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return integers as signed ones of their size: torch can do little with unsigned ones. Bools stay as they are."""
    if tensor.dtype is torch.bool:
        return tensor
    return tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize])


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()


def _moments(tensor: torch.Tensor) -> tuple[float, float]:
    """Return the root mean square and the mean size of the finite elements."""
    flat = tensor.reshape(-1)
    parts = chunks(flat)
    squares, sizes, count = 0.0, 0.0, 0
    # Read all parts at once: each transfer from the device waits for it.
    for chunk, (norm, size) in zip(parts, _looked_at([_norms(part) for part in parts]), strict=True):
        square = norm * norm
        if math.isfinite(square) and square > _LEAST_SQUARE * chunk.numel():
            squares += square
            sizes += size
            count += chunk.numel()
            continue
        # Some elements are not finite, or float32 cannot represent their squares, or all are 0.
        wide = _wide(small_floats.widened(chunk))
        finite = torch.isfinite(wide)
        wide = torch.where(finite, wide.abs(), 0.0)
        squares += float(wide.square().sum())
        sizes += float(wide.sum())
        count += int(finite.sum())
    return (math.sqrt(squares / count), sizes / count) if count else (0.0, 0.0)


def chunks(flat: torch.Tensor) -> list[torch.Tensor]:
    """Return a flat tensor in parts that are processed one after the other."""
    return [flat[start : start + _CHUNK] for start in range(0, flat.numel(), _CHUNK)]


def _norms(chunk: torch.Tensor) -> torch.Tensor:
    """Return the 2-norm and the 1-norm of all elements. A GPU sums in a tree, so float32 is enough there."""
    narrow = chunk.is_cuda and chunk.dtype in (torch.float32, torch.float16, torch.bfloat16)
    wide = chunk if narrow else _wide(small_floats.widened(chunk))
    wide = wide.abs() if wide.is_complex() else wide
    dtype = torch.float32 if narrow else torch.float64
    return torch.stack([torch.linalg.vector_norm(wide, order, dtype=dtype).double() for order in (2, 1)])


def _looked_at(pairs: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """Read pairs of numbers from a device, in one transfer."""
    return [(first, second) for first, second in numbers(torch.stack(list(pairs)))] if pairs else []


def _typical(root_mean_square: float, mean: float) -> float:
    return min(root_mean_square, 2 * mean)


def _all_within(result: Comparison, value: torch.Tensor, truth: torch.Tensor, bounds: tuple[float, float]) -> bool:
    """Return True if every element is certainly right, and note the errors. Otherwise the caller must compare fully."""
    if value.is_complex():
        return bool(torch.equal(*(torch.view_as_real(each.resolve_conj()) for each in (value, truth))))
    if not value.is_floating_point():
        return bool(torch.equal(value, truth))
    worst_error = worst_ratio = 0.0
    for largest, ratio in _looked_at(_errors_of_parts(value, truth, bounds)):
        if not ratio <= 1:  # false for NaN; neither infinities nor NaN are right here
            return False
        worst_error = max(worst_error, largest)
        worst_ratio = max(worst_ratio, ratio)
    result.max_abs_error = max(result.max_abs_error, worst_error)
    result.max_error_ratio = max(result.max_error_ratio, worst_ratio)
    return True


def _errors_of_parts(value: torch.Tensor, truth: torch.Tensor, bounds: tuple[float, float]) -> list[torch.Tensor]:
    """Return what `_errors` returns for each of the parts in which flat tensors are read: one, or else the chunks."""
    fused = _fused_errors(value, truth, bounds)
    return _errors_of_chunks(value, truth, bounds) if fused is None else [fused]


def _errors_of_chunks(value: torch.Tensor, truth: torch.Tensor, bounds: tuple[float, float]) -> list[torch.Tensor]:
    return [_errors(*pair, bounds) for pair in zip(chunks(value), chunks(truth), strict=True)]


def _fused_errors(value: torch.Tensor, truth: torch.Tensor, bounds: tuple[float, float]) -> torch.Tensor | None:
    """Return what `_errors` returns, in one pass over a GPU's memory; None if that is impossible."""
    if not value.is_cuda:
        return None
    from . import fused  # imports Triton, which is not needed without a GPU

    found: torch.Tensor | None = fused.errors(value, truth, *bounds)
    return found


def _errors(got: torch.Tensor, wanted: torch.Tensor, bounds: tuple[float, float]) -> torch.Tensor:
    """Return the largest error, and the largest one relative to the allowed error."""
    error = got.sub(wanted).abs_()  # in the wider dtype of the two
    allowed = wanted.abs().mul_(bounds[1]).add_(bounds[0])
    if not bounds[0]:
        allowed.clamp_min_(1e-300)
    return torch.stack((error.max(), error.div_(allowed).max()))


def _largest(tensor: torch.Tensor) -> float:
    """Return the largest of some sizes, which are never negative; 0 if it is not finite."""
    if not tensor.numel():
        return 0.0
    return _finite(numbers(tensor.max()))


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 0.0


def _all(which: torch.Tensor) -> bool:
    return bool(numbers(which.all()))


def _off(values: Sequence[torch.Tensor], truth: torch.Tensor, typical: float) -> list[tuple[float, float]]:
    """Return for each of the `values` its largest error, and the largest one relative to the element and `typical`.

    What is not finite counts as 0, and so do shares of nothing: `typical` is 0 if all elements are. All are read at once:
    each transfer from the device waits for it.
    """
    if not truth.numel():
        return [(0.0, 0.0)] * len(values)
    bounds, wanted = (typical, 1.0), truth.reshape(-1)
    worst = [torch.stack(_errors_of_parts(value.reshape(-1), wanted, bounds)).amax(0) for value in values]
    return [(_finite(error), _finite(share) if typical else 0.0) for error, share in _looked_at(worst)]
