"""Reductions over outputs in one pass over a GPU's memory, where torch's operations would need ten.

Outputs of real problems have gigabytes, and the judge reads each of them several times. On other devices, and if Triton
cannot compile in this process, callers use torch's operations instead. Used by `compare` and `fingerprint`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from ..runners.work import numbers

_log = logging.getLogger("kerneldyno.judge")

#: For fewer elements torch's operations take negligible time, and need no compilation.
_LEAST = 1 << 22
#: Elements that one program reads in each step, and its number of steps.
_BLOCK, _STEPS = 1024, 32
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Bounds are passed as float32, and must not overflow there.
_MOST = 1e30


class _Switch:
    """Whether fused kernels are used. A compiler that fails once is not called again."""

    works = True


def errors(got: torch.Tensor, wanted: torch.Tensor, absolute: float, relative: float) -> torch.Tensor | None:
    """Return the largest |got - wanted|, and its largest share of absolute + relative * |wanted|.

    Args:
        got: 1-D floats on a GPU.
        wanted: As many floats, of the same or a wider dtype.
        absolute: The error that is allowed for each element; positive.
        relative: The additional error that is allowed, per unit of the element's size.

    Returns:
        Two numbers on the device, infinite if any difference or share is not a number; None if the caller must compute
        them.
    """
    usable = _Switch.works and got.is_cuda and got.numel() >= _LEAST
    usable = usable and all(each.dtype in _DTYPES and each.is_contiguous() for each in (got, wanted))
    if not usable or not (0 < absolute < _MOST and 0 <= relative < _MOST):
        return None
    wide = torch.float64 in (got.dtype, wanted.dtype)
    programs = triton.cdiv(got.numel(), _BLOCK * _STEPS)
    found = torch.empty((programs, 2), dtype=torch.float64 if wide else torch.float32, device=got.device)

    def launch() -> None:
        _errors[(programs,)](got, wanted, found, got.numel(), absolute, relative, wide, _BLOCK, _STEPS, num_warps=8)

    return found.amax(0).double() if _launched(launch) else None


def weighted_sum(words: torch.Tensor, key: int, more: int) -> int | None:
    """Return the sum of int32 `words` times pseudo-random numbers, modulo 2**64; None if the caller must compute it.

    The keys `key` and `more` (62 bits each) determine the numbers, which are splitmix64 of each word's position:
    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    if not (_Switch.works and words.is_cuda and words.numel() >= _LEAST):
        return None
    programs = triton.cdiv(words.numel(), _BLOCK * _STEPS)
    found = torch.empty(programs, dtype=torch.int64, device=words.device)

    def launch() -> None:
        _weighted_sum[(programs,)](words, found, words.numel(), key, more, _BLOCK, _STEPS, num_warps=8)

    return int(numbers(found.sum())) % (1 << 64) if _launched(launch) else None


def warm_up(device: torch.device) -> None:
    """Compile the kernels for float32 on a GPU, together with the judge's other compilation at its start.

    Otherwise the first evaluation would wait for it.
    """
    if device.type != "cuda":
        return
    with contextlib.suppress(torch.OutOfMemoryError):  # somebody uses all of the device's memory; compile later
        ones = torch.ones(_LEAST, device=device)
        errors(ones, ones, 1.0, 1.0)
        # This number is as wide as keys are; otherwise the kernel would be compiled again.
        weighted_sum(ones.view(torch.int32), 1 << 61, 1 << 61)


def _launched(launch: Callable[[], Any]) -> bool:
    try:
        launch()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # no C compiler, or no directory for its output
        _log.warning("event=fused_kernels_off detail=%r", f"{type(error).__name__}: {error}"[:500])
        _Switch.works = False
    return _Switch.works


# Use no other annotations than these: Triton 3.6 evaluates them.
@triton.jit  # type: ignore[untyped-decorator]
def _errors(  # type: ignore[no-untyped-def]
    got, wanted, found, count, absolute, relative, wide: tl.constexpr, block: tl.constexpr, steps: tl.constexpr
):
    program = tl.program_id(0)
    first = program.to(tl.int64) * block * steps
    number = tl.float64 if wide else tl.float32
    largest = tl.zeros((block,), number)
    largest_share = tl.zeros((block,), number)
    for step in range(steps):
        at = first + step * block + tl.arange(0, block)
        inside = at < count
        mine = tl.load(got + at, inside, other=0.0).to(number)
        right = tl.load(wanted + at, inside, other=0.0).to(number)
        error = tl.abs(mine - right)
        share = tl.where(error == 0, 0.0, error / (tl.abs(right) * relative + absolute))
        # Comparisons with NaN are false, and a maximum may skip NaN.
        error = tl.where(error == error, error, float("inf"))
        share = tl.where(share == share, share, float("inf"))
        largest = tl.maximum(largest, error)
        largest_share = tl.maximum(largest_share, share)
    tl.store(found + 2 * program, tl.max(largest, 0))
    tl.store(found + 2 * program + 1, tl.max(largest_share, 0))


@triton.jit(do_not_specialize=["key", "more"])  # type: ignore[untyped-decorator]
def _weighted_sum(  # type: ignore[no-untyped-def]
    words, found, count, key, more, block: tl.constexpr, steps: tl.constexpr
):
    program = tl.program_id(0)
    first = program.to(tl.int64) * block * steps
    total = tl.zeros((block,), tl.int64)
    for step in range(steps):
        at = first + step * block + tl.arange(0, block)
        word = tl.load(words + at, at < count, other=0).to(tl.int64)
        mixed = ((at + key) * -7046029254386353131).to(tl.uint64)
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
        factor = (mixed ^ (mixed >> 31)).to(tl.int64) ^ more
        total += word * factor
    tl.store(found + program, tl.sum(total, 0))
