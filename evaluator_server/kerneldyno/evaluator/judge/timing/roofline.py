"""The roofline: how near a timed candidate comes to the best that its device can do. Called by the lane.

The least that a call moves (each input and parameter read once, each output written once) and computes (the reference's
matrix products, convolutions and attention) is compared with the rates that were measured on this device. It decides
nothing: references may not need all of their inputs, and a shorter algorithm than theirs may exist. Source: Williams,
Waterman and Patterson, "Roofline", CACM 52(4), 2009, https://doi.org/10.1145/1498765.1498785.
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
from ...shared.enums import Precision
from ...shared.running_problem import RunningProblem
from ..problems.cache import Announce, BuiltProblem, Problems
from ..problems.tiers import of_dtype
from ..problems.trial import Trial
from ..results.record import Record
from ..runners.lease import Lease
from .quiet import Quiet

_log = logging.getLogger("kerneldyno.judge")

#: Bytes to copy when the memory rate is measured: this multiple of the cache, but no more than the limit.
_COPIED_CACHES = 8
_MOST_COPIED = {"cuda": 1 << 30, "cpu": 64 << 20}
#: Rows of the square matrices to multiply: enough to fill a GPU in a negligible time. FP8 is compared with bfloat16,
#: because torch has no FP8 product that every device supports.
_TIERS: dict[Precision, tuple[torch.dtype, int]] = {
    Precision.FP64: (torch.float64, 4096),
    Precision.FP32: (torch.float32, 4096),
    Precision.TF32: (torch.float32, 8192),
    Precision.FP16: (torch.float16, 8192),
    Precision.BF16: (torch.bfloat16, 8192),
    Precision.FP8: (torch.bfloat16, 8192),
}
#: The key of the memory rate, which belongs to no tier.
_BYTES = Precision.UNSPECIFIED
_MOST_ROWS = {"cuda": 8192, "cpu": 256}
_TIMINGS = 4
#: Inputs larger than this multiple of the cache cannot lie in it, and reading them takes at least this share of the
#: time that the measured copy rate gives.
_BEYOND_CACHE = 4
_PLAUSIBLE = 0.8


@dataclass(frozen=True, slots=True)
class Work:
    """What a call moves and computes at least."""

    #: Bytes of the inputs alone, and including parameters and outputs.
    input_bytes: int
    bytes: int
    flops: int


class Roof:
    """The measured rates of one device. Each is measured at its first use, with the device to itself, and then kept."""

    def __init__(self, device: Device, lease: Lease, quiet: Quiet) -> None:
        self._device = device
        self._lease = lease
        self._quiet = quiet
        #: Bytes per second, under UNSPECIFIED, and operations per second in each tier.
        self._rates: dict[Precision, float] = {}

    async def rates(self, tier: Precision) -> tuple[float, float] | None:
        """Return bytes per second and operations per second in `tier` (0 for UNSPECIFIED).

        Return None if the device is busy, so that nothing can be measured.
        """
        wanted = [each for each in (_BYTES, tier) if each not in self._rates]
        if wanted:
            # All runners are stopped, including the candidate's: one that kept the device busy now would lower the
            # rates for all.
            async with self._lease.exclusive(None):
                if not await self._quiet.wait():
                    return None
                for each in wanted:
                    self._rates[each] = self.computed(each) if each else self.moved()
        return self._rates[_BYTES], self._rates[tier] if tier else 0.0

    def moved(self) -> float:
        """Measure bytes per second, by a copy much larger than the cache. Copied bytes count as read and as written."""
        device = self._device
        size = min(_COPIED_CACHES * device.cache_bytes(), _MOST_COPIED[device.kind])
        # Write it once, so that it has real memory and not one shared page of zeros.
        source = torch.empty(size, dtype=torch.uint8, device=device.torch_device).fill_(1)
        target = torch.empty_like(source)
        return 2 * size / self._quickest(lambda: target.copy_(source))

    def computed(self, tier: Precision) -> float:
        """Measure operations per second, by a product of random matrices.

        Matrices of zeros would need less power, and so less time.
        """
        device = self._device
        dtype, rows = _TIERS[tier]
        rows = min(rows, _MOST_ROWS[device.kind])
        generator = torch.Generator(device.torch_device).manual_seed(0)
        matrix = torch.randn(rows, rows, dtype=dtype, device=device.torch_device, generator=generator)
        product = torch.empty_like(matrix)
        with _tf32(allowed=tier == Precision.TF32):
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

    `example` is the first trial; timed calls are like it. A candidate that is quicker than its inputs can be read gets
    a finding.
    """
    try:
        counted = await problems.count(built, example, announce)
        work = work_of(built.problem, example, counted.flops)
        rates = await roof.rates(_tier(record.precision, example) if work.flops else _BYTES) if work.bytes else None
    except Exception as error:  # e.g. no memory beside the candidate's; an estimate must not spoil a verdict
        _log.warning("event=no_roofline detail=%r", f"{type(error).__name__}: {error}"[:500])
        return None
    if rates is None:
        return None
    doubt = implausible(work, rates[0], problems.device.cache_bytes(), seconds)
    if doubt:
        record.find("T21", pb.Finding.SEVERITY_INFO, doubt)
    return position(work, *rates, seconds)


def work_of(problem: RunningProblem, example: Trial, flops: int) -> Work:
    """Return what a call like `example` moves and computes."""
    inputs = sum(spec.nbytes for spec in example.inputs.specs)
    outputs = sum(leaf.spec.nbytes for leaf in example.expected.leaves)
    return Work(inputs, inputs + problem.parameter_bytes + outputs, flops)


def _tier(seen: Precision, example: Trial) -> Precision:
    """Return the precision in which the candidate computes: as its errors look, or else as its numbers are stored."""
    specs = [*(leaf.spec for leaf in example.expected.leaves), *example.inputs.specs]
    tiers = [seen, *(of_dtype(spec.torch_dtype) for spec in specs)]
    return next((tier for tier in tiers if tier in _TIERS), Precision.FP32)


def position(work: Work, bytes_per_second: float, flops_per_second: float, seconds: float) -> pb.Roofline:
    """Return how near a call that takes `seconds` comes to the best that the device can do."""
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
    """Describe a call that is quicker than its inputs can be read, or return "". Small inputs may lie in a cache."""
    reading = work.input_bytes / bytes_per_second
    if work.input_bytes < _BEYOND_CACHE * cache_bytes or seconds >= _PLAUSIBLE * reading:
        return ""
    return (
        f"a call takes {seconds * 1e6:.1f} us, and reading its {work.input_bytes / 1e6:.1f} MB of inputs from memory takes "
        f"{reading * 1e6:.1f} us: it does not read all of them, or finds them in a cache"
    )


@contextlib.contextmanager
def _tf32(*, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in products of float32 matrices during the body.

    This uses the newer name of the switch, which torch 2.8 lacks. If a reference has used the newer name, reading the
    older one fails.
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
