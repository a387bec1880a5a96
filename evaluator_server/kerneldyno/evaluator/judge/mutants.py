"""Mutants: answers that no kernel should get away with. What passes here passes on any candidate's say-so.

Each makes an output out of things a lazy candidate could have: nothing at all, an answer to other inputs, the input itself,
a part of the data, or fewer bits. `examination` holds them against a problem's own trials; `vet` prints what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

Leaves = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Material:
    """What mutants are made of: one trial's inputs and right answer, the same of another draw, and the reference."""

    inputs: Leaves
    expected: Leaves
    other_inputs: Leaves
    other: Leaves
    #: The reference on changed inputs.
    rerun: Callable[[Leaves], Leaves]


def mutants(material: Material) -> Iterator[tuple[str, Leaves]]:
    """Yield (name, output) of every mutant that can be made for this problem."""
    expected = material.expected
    yield "zeros", [torch.zeros_like(leaf) for leaf in expected]
    yield "ones", [torch.ones_like(leaf) for leaf in expected]
    yield "another draw's mean", [_mean_like(leaf) for leaf in material.other]
    yield "another draw's answer", material.other
    if any(leaf.dim() > 1 for leaf in expected):
        yield "another draw's mean row", [_mean_row_like(leaf) for leaf in material.other]
    copied = _copies(material)
    if copied is not None:
        yield "a copy of the input", copied
        yield "a straight line through the input", _lines(material, copied)
    if any(leaf.dim() > 0 and leaf.shape[0] > 1 for leaf in expected):
        yield "half of the answer", [_half(leaf) for leaf in expected]
    if any(_workable(tensor) for tensor in material.inputs):
        yield "half of the data, the rest zero", material.rerun([_zero_tail(tensor) for tensor in material.inputs])
        yield "half of the data, twice", material.rerun([_repeat_head(tensor) for tensor in material.inputs])
        yield "the data reversed", material.rerun([_reversed(tensor) for tensor in material.inputs])
    if any(tensor.dtype == torch.float32 for tensor in material.inputs):
        yield "bfloat16 operands", material.rerun([_rounded(tensor) for tensor in material.inputs])


def _workable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 0 and tensor.shape[-1] > 1


def _mean_like(leaf: torch.Tensor) -> torch.Tensor:
    return torch.full_like(leaf, leaf.double().mean().item()) if leaf.is_floating_point() else torch.zeros_like(leaf)


def _mean_row_like(leaf: torch.Tensor) -> torch.Tensor:
    if leaf.dim() < 2 or not leaf.is_floating_point():
        return leaf
    return leaf.double().mean(0, keepdim=True).to(leaf.dtype).expand_as(leaf).contiguous()


def _copies(material: Material) -> Leaves | None:
    found = []
    for leaf in material.expected:
        for tensor in material.inputs:
            if tensor.shape == leaf.shape and tensor.dtype == leaf.dtype and tensor.is_floating_point():
                found.append(tensor.clone())
                break
        else:
            return None
    return found


def _lines(material: Material, copied: Sequence[torch.Tensor]) -> Leaves:
    """Fit a line through input and answer of the other draw, and use it on this one."""
    result = []
    for leaf, x in zip(material.other, copied, strict=True):
        source = next(t for t in material.other_inputs if t.shape == leaf.shape and t.dtype == leaf.dtype)
        a, b = source.double().reshape(-1), leaf.double().reshape(-1)
        spread = (a - a.mean()).square().sum().clamp_min(1e-300)
        slope = ((a - a.mean()) * (b - b.mean())).sum() / spread
        result.append((x.double() * slope + (b.mean() - slope * a.mean())).to(leaf.dtype))
    return result


def _half(leaf: torch.Tensor) -> torch.Tensor:
    if leaf.dim() == 0 or leaf.shape[0] < 2:
        return leaf
    cut = leaf.clone()
    cut[leaf.shape[0] // 2 :] = 0
    return cut


def _zero_tail(tensor: torch.Tensor) -> torch.Tensor:
    if not _workable(tensor):
        return tensor
    cut = tensor.clone()
    cut[..., tensor.shape[-1] // 2 :] = 0
    return cut


def _repeat_head(tensor: torch.Tensor) -> torch.Tensor:
    if not _workable(tensor):
        return tensor
    cut = tensor.clone()
    half = tensor.shape[-1] // 2
    cut[..., half : 2 * half] = tensor[..., :half]
    return cut


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flip(-1) if _workable(tensor) else tensor


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.bfloat16().float() if tensor.dtype == torch.float32 else tensor
