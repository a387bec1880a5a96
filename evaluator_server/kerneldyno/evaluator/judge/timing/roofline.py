"""The roofline: how near a timed candidate comes to what its device can do at all. Called by the lane.

The least that a call moves (each input and parameter read once, each output written once) and computes (the reference's
matrix products, convolutions and attention) is held against what this device was measured to do. It decides nothing:
references may not need all of their inputs, and there may be a shorter way than theirs. Source: Williams, Waterman and
Patterson, "Roofline", CACM 52(4), 2009, https://doi.org/10.1145/1498765.1498785.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kerneldyno.v1 import evaluation_pb2 as pb

from ...devices.base import Device
from ...toolkits import Problem
from ..problems.cache import Announce, BuiltProblem, Problems
from ..problems.tiers import of_dtype
from ..problems.trial import Trial
from ..results.record import Record
from ..runners.lease import Lease
from .quiet import Quiet

_log = logging.getLogger("kerneldyno.judge")

#: Bytes that are copied to measure memory: so many times the cache, but no more than this.
_COPIED_CACHES = 8
_MOST_COPIED = {"cuda": 1 << 30, "cpu": 64 << 20}
#: Rows of the square matrices that are multiplied: as many as fill a GPU, and take no time to speak of. FP8, for which torch
#: has no product that every device can do, is held against bfloat16.
_TIERS: dict[pb.Precision.ValueType, tuple[torch.dtype, int]] = {
    pb.PRECISION_FP64: (torch.float64, 4096),
    pb.PRECISION_FP32: (torch.float32, 4096),
    pb.PRECISION_TF32: (torch.float32, 8192),
    pb.PRECISION_FP16: (torch.float16, 8192),
    pb.PRECISION_BF16: (torch.bfloat16, 8192),
    pb.PRECISION_FP8: (torch.bfloat16, 8192),
}
#: What the rate of memory is kept under, which is no tier's.
_BYTES = pb.PRECISION_UNSPECIFIED
_MOST_ROWS = {"cuda": 8192, "cpu": 256}
_TIMINGS = 4
#: Inputs so many times the cache cannot lie in it, and reading them takes at least this share of what a copy makes of it.
_BEYOND_CACHE = 4
_PLAUSIBLE = 0.8


@dataclass(frozen=True, slots=True)
class Work:
    """What a call moves and computes at the least."""

    #: Of the inputs alone, and with parameters and outputs.
    input_bytes: int
    bytes: int
    flops: int


class Roof:
    """What one device was measured to do: each rate when it is first wanted, with the device to itself, and then kept."""

    def __init__(self, device: Device, lease: Lease, quiet: Quiet) -> None:
        self._device = device
        self._lease = lease
        self._quiet = quiet
        #: Bytes a second, under UNSPECIFIED, and operations a second in each tier.
        self._rates: dict[pb.Precision.ValueType, float] = {}

    async def rates(self, tier: pb.Precision.ValueType) -> tuple[float, float] | None:
        """Return bytes a second and operations a second in `tier` (UNSPECIFIED: 0); None where nothing can be measured."""
        wanted = [each for each in (_BYTES, tier) if each not in self._rates]
        if wanted:
            # Everybody stands still, the candidate too: who kept the device busy now would lower the roof for all.
            async with self._lease.exclusive(None):
                if not await self._quiet.wait():
                    return None
                for each in wanted:
                    self._rates[each] = self.computed(each) if each else self.moved()
        return self._rates[_BYTES], self._rates[tier] if tier else 0.0

    def moved(self) -> float:
        """Measure bytes a second, by a copy much larger than the cache: what is copied is read and written."""
        device = self._device
        size = min(_COPIED_CACHES * device.cache_bytes(), _MOST_COPIED[device.kind])
        # Written once, so that there is memory behind it and no page of zeros that all share.
        source = torch.empty(size, dtype=torch.uint8, device=device.torch_device).fill_(1)
        target = torch.empty_like(source)
        return 2 * size / self._quickest(lambda: target.copy_(source))

    def computed(self, tier: pb.Precision.ValueType) -> float:
        """Measure operations a second, by a product of random matrices: of zeros it would take less power, and less time."""
        device = self._device
        dtype, rows = _TIERS[tier]
        rows = min(rows, _MOST_ROWS[device.kind])
        generator = torch.Generator(device.torch_device).manual_seed(0)
        matrix = torch.randn(rows, rows, dtype=dtype, device=device.torch_device, generator=generator)
        product = torch.empty_like(matrix)
        with _tf32(allowed=tier == pb.PRECISION_TF32):
            return 2 * rows**3 / self._quickest(lambda: torch.mm(matrix, matrix, out=product))

    def _quickest(self, call: Callable[[], Any]) -> float:
        """Return the seconds of the quickest of some calls, after one that is not timed."""
        watch = self._device.stopwatch(_TIMINGS)
        call()
        for index in range(_TIMINGS):
            watch.start(index)
            call()
            watch.stop(index)
        self._device.synchronize()
        return max(min(watch.seconds()), 1e-9)


async def place(
    roof: Roof,
    built: BuiltProblem,
    problems: Problems,
    announce: Announce,
    example: Trial,
    record: Record,
    seconds: float,
) -> pb.Roofline | None:
    """Return how near a candidate whose call takes `seconds` comes to the roof; None if that cannot be measured.

    `example` is the first trial: timed calls are like it. Who is quicker than its inputs can be read gets a finding.
    """
    try:
        counted = await problems.count(built, example, announce)
        work = work_of(built.problem, example, counted.flops)
        rates = await roof.rates(_tier(record.precision, example) if work.flops else _BYTES) if work.bytes else None
    except Exception as error:  # no memory for it beside the candidate's, for example: an estimate spoils no verdict
        _log.warning("no roofline: %s: %s", type(error).__name__, error)
        return None
    if rates is None:
        return None
    doubt = implausible(work, rates[0], problems.device.cache_bytes(), seconds)
    if doubt:
        record.find("T21", pb.Finding.SEVERITY_INFO, doubt)
    return position(work, *rates, seconds)


def work_of(problem: Problem, example: Trial, flops: int) -> Work:
    """Return what a call like `example` moves and computes."""
    inputs = sum(spec.nbytes for spec in example.inputs.specs)
    outputs = sum(leaf.spec.nbytes for leaf in example.expected.leaves)
    return Work(inputs, inputs + problem.parameter_bytes() + outputs, flops)


def _tier(seen: pb.Precision.ValueType, example: Trial) -> pb.Precision.ValueType:
    """Return the precision in which the candidate computes: as its errors look, or else as its numbers are stored."""
    specs = [*(leaf.spec for leaf in example.expected.leaves), *example.inputs.specs]
    tiers = [seen, *(of_dtype(spec.torch_dtype) for spec in specs)]
    return next((tier for tier in tiers if tier in _TIERS), pb.PRECISION_FP32)


def position(work: Work, bytes_per_second: float, flops_per_second: float, seconds: float) -> pb.Roofline:
    """Return how near a call that takes `seconds` comes to what the device can do at best."""
    moving = work.bytes / bytes_per_second
    computing = work.flops / flops_per_second if work.flops else 0.0
    least = max(moving, computing)
    return pb.Roofline(
        bytes=work.bytes,
        flops=work.flops,
        bytes_per_second=bytes_per_second,
        flops_per_second=flops_per_second,
        least_seconds=least,
        share=least / seconds,
        bound=pb.Roofline.BOUND_COMPUTE if computing > moving else pb.Roofline.BOUND_MEMORY,
    )


def implausible(work: Work, bytes_per_second: float, cache_bytes: int, seconds: float) -> str:
    """Say that a call is quicker than its inputs can be read, if it is; small ones may lie in a cache."""
    reading = work.input_bytes / bytes_per_second
    if work.input_bytes < _BEYOND_CACHE * cache_bytes or seconds >= _PLAUSIBLE * reading:
        return ""
    return (
        f"a call takes {seconds * 1e6:.1f} us, and reading its {work.input_bytes / 1e6:.1f} MB of inputs from memory takes "
        f"{reading * 1e6:.1f} us: it does not read all of them, or finds them in a cache"
    )


@contextlib.contextmanager
def _tf32(*, allowed: bool) -> Iterator[None]:
    """Allow, or forbid, TF32 in products of float32 matrices meanwhile.

    By the newer name of the switch, which torch 2.8 has not: where a reference has used that, reading the older one fails.
    """
    switch = torch.backends.cuda.matmul
    newer = hasattr(switch, "fp32_precision")
    name, values = ("fp32_precision", ("ieee", "tf32")) if newer else ("allow_tf32", (False, True))
    before = getattr(switch, name)
    setattr(switch, name, values[allowed])
    try:
        yield
    finally:
        setattr(switch, name, before)
