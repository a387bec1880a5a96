"""Stress inputs: a problem's own inputs, changed so that only the operator itself gives the right answer for them.

Problems draw their inputs from one distribution, often uniform on [0, 1), on which many shortcuts are right: ReLU is
the identity, a mean is one half, products of many factors vanish, bfloat16 errors average out. Each kind of stress
breaks one such shortcut. It keeps what candidates may rightly rely on: integers, zeros, discrete values (masks,
labels), symmetric matrices, rows that sum to one or hold everything twice, sorted rows. Kinds on which the reference
itself fails are dropped (`examination`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...shared import small_floats
from ...shared.enums import StressKind
from ...shared.pieces import pieces

#: Number of values that are read to classify a tensor.
_SAMPLE = 1 << 16
#: A tensor with no more different values than this holds labels or a mask, not measurements.
_DISCRETE = 16
#: Fewer values than the first number show no distribution; sorting more than the second shows nothing more.
_FEW, _MOST_SORTED = 32, 1 << 14
#: Quantiles of uniformly drawn numbers are off by no more than this, apart from chance.
_EVEN = 0.02
#: Share of the elements of a timed input that are changed, and the most elements that are.
_SEASONING_SHARE = 1e-3
_MOST_SEASONED = 256


@dataclass(frozen=True, slots=True)
class Trait:
    """Properties of a tensor that must be kept. `free` is False for tensors that must not be changed at all."""

    free: bool
    symmetric: bool = False
    simplex: bool = False
    #: Each row holds everything twice: its halves are equal, or its neighbours are. Cosines and sines of rotary positions
    #: come so, and kernels load them once.
    halves: bool = False
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Stress:
    """One kind of change, its strength, and whether signs may change."""

    kind: str
    amplitude: float
    signed: bool


#: Kinds in the order in which they are tried, each with its amplitudes, strongest first.
KINDS: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("signs", (1.0,)),
    ("large", (200.0, 16.0, 3.0)),
    ("rows", (1.0, 1 / 32)),
    ("sparse", (1.0,)),
    ("sorted", (1.0,)),
    ("wave", (45.0, 5.0)),
    ("patch", (200.0, 16.0)),
)
#: Each kind in the contract.
CONTRACT: Mapping[str, StressKind] = {
    "signs": StressKind.SIGNS,
    "large": StressKind.LARGE,
    "rows": StressKind.ROWS,
    "sparse": StressKind.SPARSE,
    "sorted": StressKind.SORTED,
    "wave": StressKind.WAVE,
    "patch": StressKind.PATCH,
}
#: The kind that enlarges everything. An honest kernel whose terms are larger than its reference's need not tolerate it.
_ENLARGING = "large"


def weaker(stress: Stress) -> Stress | None:
    """Return the next weaker amplitude of the strongest enlarging stress; None for any other stress.

    A kernel must tolerate anything that is not hundreds of times the problem's own inputs. Kinds that enlarge only a
    part have no weaker form here, because a mistake may show in as few elements as an honest overflow does: for
    example, a softmax over another dimension than the last one, with the maximum of its first block.
    """
    strongest, *less = dict(KINDS)[stress.kind]
    return replace(stress, amplitude=less[0]) if (stress.kind, stress.amplitude) == (_ENLARGING, strongest) else None


def trait(tensor: torch.Tensor) -> Trait:
    """Determine the properties of `tensor`, one nominal input."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return Trait(free=False)
    if small_floats.is_coded(tensor.dtype) and not small_floats.can_vary(tensor.dtype):
        return Trait(free=False)
    tensor = small_floats.widened(tensor)
    flat = tensor.reshape(-1)
    step = max(1, flat.numel() // _SAMPLE)
    sample = flat[::step][:_SAMPLE].double()
    if not bool(torch.isfinite(sample).all()) or len(torch.unique(sample)) <= min(_DISCRETE, len(sample) // 2):
        return Trait(free=False)
    if tensor.dim() >= 1 and tensor.shape[-1] > 2:
        rows = tensor.reshape(-1, tensor.shape[-1])[:64].double()
        steps = rows.diff(dim=-1)
        if bool((steps >= 0).all()) or bool((steps <= 0).all()):
            return Trait(free=False)  # sorted: boundaries, positions
        sums = rows.sum(-1)
        if bool((rows >= 0).all()) and bool(((sums - 1).abs() < 1e-2).all()):
            return Trait(free=True, simplex=True)
    if _means_its_sign(sample):
        return Trait(free=False)
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
    symmetric = square and bool(torch.equal(tensor, tensor.mT))
    halves, pairs = (not symmetric and _is_twice(tensor, ways) for ways in (_halves, _neighbours))
    return Trait(free=True, symmetric=symmetric, halves=halves, pairs=pairs)


def _halves(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first and the second half of each row."""
    half = tensor.shape[-1] // 2
    return tensor[..., :half], tensor[..., half:]


def _neighbours(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first and the second of each pair of neighbours in a row."""
    return tensor[..., 0::2], tensor[..., 1::2]


def _is_twice(tensor: torch.Tensor, ways: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Return True if both parts of all rows are equal."""
    if tensor.dim() == 0 or tensor.shape[-1] % 2 or tensor.shape[-1] < 4:
        return False
    sample = tensor.reshape(-1, tensor.shape[-1])[:64]
    return torch.equal(*ways(sample)) and torch.equal(*ways(tensor))


def _means_its_sign(sample: torch.Tensor) -> bool:
    """Return True if numbers of one sign have a reason for it: decays, variances, probabilities, lengths.

    Uniformly drawn positive numbers have none: they are what `torch.rand` gives without further thought.
    """
    if len(sample) < _FEW or bool((sample < 0).any() and (sample > 0).any()):
        return False
    if bool((sample <= 0).all()):
        return True
    shares = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9], dtype=torch.float64, device=sample.device)
    least, most = sample.aminmax()
    off = (torch.quantile(sample[:_MOST_SORTED], shares) - least) / (most - least) - shares
    return bool(off.abs().max() > _EVEN + 2 / math.sqrt(len(sample)))


def apply(
    stress: Stress,
    tensors: Sequence[torch.Tensor],
    traits: Sequence[Trait],
    generator: torch.Generator,
    targets: Sequence[torch.Tensor],
) -> None:
    """Write `tensors`, changed by `stress` where allowed, into `targets` of the same shapes.

    Large tensors are changed piece by piece.
    """
    change = _CHANGES[stress.kind]
    for tensor, what, target in zip(tensors, traits, targets, strict=True):
        if not what.free:
            small_floats.raw(target).copy_(small_floats.raw(tensor))
            continue
        for part, into in zip(_pieces(tensor, what), _pieces(target, what), strict=True):
            plain = small_floats.widened(part)
            into.copy_(small_floats.narrowed(_keep(plain, change(plain, stress, generator), what), into.dtype))


def _pieces(tensor: torch.Tensor, what: Trait) -> Sequence[torch.Tensor]:
    """Return a tensor in pieces that can be changed one after the other."""
    whole = tensor.dim() < 2 or (what.symmetric and tensor.dim() == 2)
    return [tensor] if whole else pieces(tensor)


def season(
    sets: Sequence[torch.Tensor],
    traits: Sequence[Trait],
    held: Sequence[Stress],
    generator: torch.Generator,
) -> None:
    """Change a few secret elements of nominal tensors in place, in ways that the problem tolerates.

    `sets` has one (draws, elements) view for each tensor of an input set. Timed inputs then look nominal to any
    statistic that does not read every element, but are never purely nominal.
    """
    signed = any(stress.signed for stress in held)
    amplitude = 8.0 if any(stress.kind == "large" and stress.amplitude >= 8 for stress in held) else 1.5
    if not held:
        return
    for flat, what in zip(sets, traits, strict=True):
        if not what.free or what.simplex or what.symmetric or what.halves or what.pairs:
            continue
        draws, elements = flat.shape
        count = max(1, min(_MOST_SEASONED, int(elements * _SEASONING_SHARE)))
        where = torch.randint(elements, (draws, count), generator=generator, device=flat.device)
        factor = amplitude * (_signs((draws, count), small_floats.widened(flat[:, :1]), generator) if signed else 1.0)
        changed = small_floats.narrowed(small_floats.widened(flat).gather(1, where) * factor, flat.dtype)
        raw, changed = (
            each.view(torch.uint8) if small_floats.is_coded(flat.dtype) else each for each in (flat, changed)
        )
        raw.scatter_(1, where, changed)


def _signs(shape: Sequence[int], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    bits = torch.randint(2, tuple(shape), generator=generator, device=like.device, dtype=torch.int8)
    return bits.to(like.dtype).mul_(2).sub_(1)


def _uniform(shape: Sequence[int], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(tuple(shape), generator=generator, device=like.device, dtype=torch.float32)


def _shares(shape: Sequence[int], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return evenly spaced numbers in [0, 1) in random order, so that a share of them is that share of the rows."""
    count = math.prod(shape)
    return (torch.randperm(count, generator=generator, device=like.device) / count).view(tuple(shape))


def _random_signs(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    if not stress.signed:
        return tensor
    return tensor * _signs(tensor.shape, tensor, generator)


def _change_signs(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    return _random_signs(tensor, stress, generator)


def _change_scale(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    """Enlarge everything.

    Half of the rows get one sign and no small values, so that no shift or padding goes undetected.
    """
    changed = _random_signs(tensor, stress, generator)
    if tensor.dim() > 1:
        which = _shares((*tensor.shape[:-1], 1), tensor, generator)
        away = torch.where(tensor == 0, 0, tensor.abs() + 1).to(tensor.dtype)
        changed = torch.where(which < 0.25, -away if stress.signed else away, changed)
        changed = torch.where(which > 0.75, away, changed)
    return changed * stress.amplitude


def _change_rows(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    """Give each row a scale of its own, from 2**-10 to 2**5, and far less for some rows.

    A quarter of the rows get one sign, and a few elements become outliers.
    """
    rows = (*tensor.shape[:-1], 1) if tensor.dim() > 1 else tensor.shape
    scale = torch.exp2(15 * _uniform(rows, tensor, generator) - 10).clamp(max=32 * stress.amplitude)
    if stress.amplitude >= 1 and tensor.dim() > 1:
        scale = torch.where(_shares(rows, tensor, generator) < 0.15, 2.0**-20, scale)
    changed = tensor * _signs(tensor.shape, tensor, generator) if stress.signed else tensor
    if stress.signed and tensor.dim() > 1:
        one_sided = -tensor.abs() * torch.ones_like(tensor)
        changed = torch.where(_shares(rows, tensor, generator) < 0.25, one_sided, changed)
    changed = changed * scale.to(tensor.dtype)
    outliers = _uniform(tensor.shape, tensor, generator) < 1 / 64
    return torch.where(outliers, changed * 8, changed)


def _change_sparse(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    """Zero most elements and all of some rows, and make the elements of other rows equal.

    Equal elements have few significant bits, so their sums are exact in any order, as an honest mean may assume. Half
    of these rows repeat about their largest element, whose powers fade slowest.
    """
    changed = torch.where(_uniform(tensor.shape, tensor, generator) < 0.9, 0, tensor).to(tensor.dtype)
    changed = _random_signs(changed, stress, generator)
    if tensor.dim() < 2 or tensor.numel() == tensor.shape[-1]:
        return changed
    what = _shares((*tensor.shape[:-1], 1), tensor, generator)
    largest = tensor.abs().amax(-1, keepdim=True) * (63 / 64)
    equal = torch.where(what > 0.8, largest, tensor[..., :1]).to(torch.bfloat16).to(tensor.dtype)
    if stress.signed:
        equal = equal * _signs(equal.shape, tensor, generator)
    changed = torch.where(what < 0.2, 0, changed).to(tensor.dtype)
    return torch.where(what > 0.6, equal, changed)


def _change_sorted(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    """Sort each row, half of them upwards: the end of a row then matters most, or least."""
    changed = torch.sort(_random_signs(tensor, stress, generator), dim=-1).values
    if tensor.dim() < 2:
        return changed
    upwards = _uniform((*tensor.shape[:-1], 1), tensor, generator) < 0.5
    return torch.where(upwards, changed, changed.flip(-1))


def _change_wave(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    """Let the running product of each row sink to exp(-amplitude) and rise again, so that nothing stays vanished."""
    length = tensor.shape[-1]
    slope = torch.full((length,), 2 * stress.amplitude / length, device=tensor.device)
    slope[: length // 2] *= -1
    unsteady = 4 * (_uniform(tensor.shape, tensor, generator) - 0.5) / math.sqrt(length)
    size = torch.exp(slope + unsteady).to(tensor.dtype)
    return size * torch.sign(tensor) * (_signs(tensor.shape, tensor, generator) if stress.signed else 1)


def _change_patch(tensor: torch.Tensor, stress: Stress, generator: torch.Generator) -> torch.Tensor:
    """Leave everything nominal except one secret patch, away from the edges.

    A candidate that judges the whole by reading a part of the data is then wrong. The cheapest part to read is the
    first row or column, so a patch never reaches the edges of a dimension of three or more.
    """
    inside = torch.ones((), dtype=torch.bool, device=tensor.device)
    for dim, size in enumerate(tensor.shape[-2:], max(0, tensor.dim() - 2)):
        extent = max(1, size // 8)
        room = size - extent
        margin = min(max(1, size // 16), room // 2)
        start = int(torch.randint(margin, room - margin + 1, (1,), generator=generator, device=tensor.device))
        shape = [1] * tensor.dim()
        shape[dim] = size
        at = torch.arange(size, device=tensor.device).view(shape)
        inside = inside & (at >= start) & (at < start + extent)
    return torch.where(inside, _random_signs(tensor, stress, generator) * stress.amplitude, tensor)


_CHANGES: dict[str, Callable[[torch.Tensor, Stress, torch.Generator], torch.Tensor]] = {
    "signs": _change_signs,
    "large": _change_scale,
    "rows": _change_rows,
    "sparse": _change_sparse,
    "sorted": _change_sorted,
    "wave": _change_wave,
    "patch": _change_patch,
}


def _keep(tensor: torch.Tensor, changed: torch.Tensor, what: Trait) -> torch.Tensor:
    changed = torch.where(tensor == 0, 0, changed).to(tensor.dtype)  # triangles, bands, padding
    if what.symmetric:
        if torch.equal(torch.triu(changed), torch.triu(tensor)):
            changed = changed.mT  # a patch may lie below the diagonal
        return (torch.triu(changed) + torch.triu(changed, 1).mT).contiguous()
    for held, parts in ((what.halves, _halves), (what.pairs, _neighbours)):
        if held:
            first, second = parts(changed)
            if torch.equal(first, parts(tensor)[0]):
                first.copy_(second)  # a patch may lie in the second part
            else:
                second.copy_(first)
    if what.simplex:
        positive = changed.abs() + torch.finfo(changed.dtype).tiny
        return positive / positive.sum(-1, keepdim=True)
    return changed
