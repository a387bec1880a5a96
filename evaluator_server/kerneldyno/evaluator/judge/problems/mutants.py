"""Mutants: wrong answers that no trial should accept. If a mutant passes a problem, a lazy candidate passes, too.

Each mutant makes an output from what a lazy candidate could have: nothing at all, an answer to other inputs, the input
itself, a part of the data, or fewer bits. `examination` tries them on a problem's own trials; `vet` prints the result.
If an operator's own symmetry undoes a change (a sum of reversed data), that change makes no mutant: it does all of the
work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ...shared.precision import round_to

Leaves = list[torch.Tensor]
Make = Callable[["Material"], Leaves | None]

#: Number of columns that a truncated scan or reduction reads.
_COLUMNS = 64
#: A sampling reduction reads one element in this many.
_STEP = 8


@dataclass(frozen=True, slots=True)
class Material:
    """What mutants are made of: one trial's inputs and right answer, the same of another draw, and the reference."""

    inputs: Leaves
    expected: Leaves
    other_inputs: Leaves
    other: Leaves
    #: Runs the reference on changed inputs.
    rerun: Callable[[Leaves], Leaves]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to be lazy. `make` returns the output, or None if the problem has nothing to make it of."""

    name: str
    make: Make
    #: True if some operators do exactly this (a line, a sign, a broadcast). If stress cannot detect it, it is not lazy.
    whole: bool = False
    #: Mantissa bits of a mutant that does all of the work and only drops precision; None for the others.
    bits: int | None = None


def _of_answer(change: Callable[[torch.Tensor], torch.Tensor], where: Callable[[torch.Tensor], bool]) -> Make:
    """Change those leaves of the right answer for which `where` holds."""

    def make(material: Material) -> Leaves | None:
        if not any(where(leaf) for leaf in material.expected):
            return None
        return [change(leaf) if where(leaf) else leaf for leaf in material.expected]

    return make


def _of_data(change: Callable[[torch.Tensor], torch.Tensor], where: Callable[[torch.Tensor], bool]) -> Make:
    """Run the reference on inputs that are changed where `where` holds."""

    def make(material: Material) -> Leaves | None:
        if not any(where(tensor) for tensor in material.inputs):
            return None
        return material.rerun([change(tensor) if where(tensor) else tensor for tensor in material.inputs])

    return make


def _everywhere(leaf: torch.Tensor) -> bool:
    return True


def _has_rows(leaf: torch.Tensor) -> bool:
    return leaf.dim() > 0 and leaf.shape[0] > 1


def _has_several(leaf: torch.Tensor) -> bool:
    return leaf.numel() > 1


def _has_columns(leaf: torch.Tensor) -> bool:
    return leaf.dim() > 0 and leaf.shape[-1] > 1


def _is_wide(leaf: torch.Tensor) -> bool:
    return leaf.dim() > 0 and leaf.shape[-1] > _COLUMNS


def _workable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and _has_columns(tensor)


def _workable_rows(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 1 and tensor.shape[0] > 1


def _mean_like(leaf: torch.Tensor) -> torch.Tensor:
    return torch.full_like(leaf, leaf.double().mean().item()) if leaf.is_floating_point() else torch.zeros_like(leaf)


def _mean_row_like(leaf: torch.Tensor) -> torch.Tensor:
    if leaf.dim() < 2 or not leaf.is_floating_point():
        return leaf
    return leaf.double().mean(0, keepdim=True).to(leaf.dtype).expand_as(leaf)


def _mean_row(material: Material) -> Leaves | None:
    if not any(leaf.dim() > 1 for leaf in material.expected):
        return None
    return [_mean_row_like(leaf) for leaf in material.other]


def _source(leaf: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the input of which a leaf of the output could be a copy."""
    for tensor in tensors:
        if tensor.shape == leaf.shape and tensor.dtype == leaf.dtype and tensor.is_floating_point():
            return tensor
    return None


def _copy(material: Material) -> Leaves | None:
    found = [_source(leaf, material.inputs) for leaf in material.expected]
    return [tensor for tensor in found if tensor is not None] if all(tensor is not None for tensor in found) else None


def _sign(material: Material) -> Leaves | None:
    copied = _copy(material)
    return None if copied is None else [tensor.sign() for tensor in copied]


def _line(material: Material) -> Leaves | None:
    return _fit(material, lambda leaf: list(range(leaf.dim())))


def _line_of_each_feature(material: Material) -> Leaves | None:
    """Fit a line per channel, or per column of a matrix: normalisation with constant statistics does that."""
    if all(leaf.dim() < 2 for leaf in material.expected):
        return None
    return _fit(material, lambda leaf: [dim for dim in range(leaf.dim()) if dim != 1])


def _fit(material: Material, over: Callable[[torch.Tensor], list[int]]) -> Leaves | None:
    """Fit lines through input and answer of the other draw, and use them on this draw."""
    copied = _copy(material)
    if copied is None:
        return None
    result = []
    for leaf, x in zip(material.other, copied, strict=True):
        source = _source(leaf, material.other_inputs)
        assert source is not None  # both draws have the same shapes
        dims, wide = over(leaf), torch.promote_types(leaf.dtype, torch.float32)
        a, b = source.to(wide), leaf.to(wide)
        if dims:
            a_mean, b_mean = a.mean(dims, keepdim=True), b.mean(dims, keepdim=True)
            away = a - a_mean
            spread = away.square().sum(dims, keepdim=True).clamp_min_(torch.finfo(wide).tiny)
            slope = (away * b).sum(dims, keepdim=True) / spread
            b = (x - a_mean).mul_(slope).add_(b_mean)
        result.append(b.to(leaf.dtype))
    return result


def _cut(leaf: torch.Tensor, dim: int, start: int) -> torch.Tensor:
    """Zero everything from `start` on."""
    cut = leaf.clone()
    cut.narrow(dim, start, leaf.shape[dim] - start).zero_()
    return cut


def _stopped(leaf: torch.Tensor) -> torch.Tensor:
    """Hold the value that a scan has reached halfway."""
    held = leaf.clone()
    half = leaf.shape[-1] // 2
    held[..., half:] = leaf[..., half - 1 : half]
    return held


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    cut = tensor.clone()
    half = tensor.shape[-1] // 2
    cut[..., half : 2 * half] = tensor[..., :half]
    return cut


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Replace elements by the sampled element before them."""
    length = tensor.shape[-1]
    if length <= _STEP:
        return tensor[..., :1].expand_as(tensor)
    return tensor[..., ::_STEP].repeat_interleave(_STEP, -1)[..., :length]


def _signs(material: Material) -> Leaves | None:
    """Run the reference on the signs of the data, all scaled to the average size of the data."""
    if not any(_workable(tensor) for tensor in material.inputs):
        return None
    pairs = zip(material.inputs, material.other_inputs, strict=True)
    return material.rerun([x.sign() * other.abs().mean() if _workable(x) else x for x, other in pairs])


def _without(which: int) -> Make:
    """Run the reference with one input from another draw, as if the candidate never read it."""

    def make(material: Material) -> Leaves | None:
        if len(material.inputs) < 2 or which >= len(material.inputs):
            return None
        mixed = list(material.inputs)
        if torch.equal(mixed[which], material.other_inputs[which]):
            return None  # masks, positions: the same in every draw
        mixed[which] = material.other_inputs[which]
        return material.rerun(mixed)

    return make


def _rounded(bits: int) -> Make:
    def finer(tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() and torch.finfo(tensor.dtype).eps < 2.0**-bits

    return _of_data(lambda tensor: round_to(tensor, bits), finer)


#: Cheap ones first, and precision from fine to coarse: if one tier is too coarse, so is the next.
MUTANTS: tuple[Mutant, ...] = (
    Mutant("zeros", _of_answer(torch.zeros_like, _everywhere)),
    Mutant("ones", _of_answer(torch.ones_like, _everywhere)),
    Mutant("another draw's mean", lambda material: [_mean_like(leaf) for leaf in material.other]),
    Mutant("another draw's answer", lambda material: material.other),
    Mutant("another draw's mean row", _mean_row),
    Mutant("a copy of the input", _copy, whole=True),
    Mutant("the sign of the input", _sign, whole=True),
    Mutant("a straight line through the input", _line, whole=True),
    Mutant("a straight line for each feature", _line_of_each_feature, whole=True),
    Mutant(
        "the answer's first element everywhere",
        _of_answer(lambda leaf: leaf.reshape(-1)[:1].expand(leaf.shape), _has_several),
        whole=True,
    ),
    Mutant(
        "the answer's first row everywhere", _of_answer(lambda leaf: leaf[:1].expand_as(leaf), _has_rows), whole=True
    ),
    Mutant("the answer's rows in another order", _of_answer(lambda leaf: leaf.roll(1, 0), _has_rows), whole=True),
    Mutant("half of the answer's rows", _of_answer(lambda leaf: _cut(leaf, 0, leaf.shape[0] // 2), _has_rows)),
    Mutant("the answer's first 64 columns", _of_answer(lambda leaf: _cut(leaf, -1, _COLUMNS), _is_wide)),
    Mutant("the answer's first half held", _of_answer(_stopped, _has_columns), whole=True),
    Mutant("half of the data and zeros", _of_data(lambda x: _cut(x, -1, x.shape[-1] // 2), _workable)),
    Mutant("half of the data twice", _of_data(_repeated, _workable)),
    Mutant("every eighth element of the data", _of_data(_sampled, _workable)),
    Mutant("the first row of the data", _of_data(lambda x: x[:1].expand_as(x), _workable_rows)),
    Mutant("the signs of the data", _signs, whole=True),
    *(Mutant(f"the {name} input unread", _without(which)) for which, name in enumerate(("first", "second", "third"))),
    Mutant("tf32 operands", _rounded(10), bits=10),
    Mutant("bfloat16 operands", _rounded(7), bits=7),
    Mutant("fp8 operands", _rounded(3), bits=3),
)
