"""Read the hardware counters of a result: which kernel is the slowest, and what limits it. Pure.

Counters come from the candidate's process, so a number may be anything. One that cannot be is left out or shown as "?".
Cards, reports and feedback all read counters with these functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kerneldyno.rewards import roofline
from kerneldyno.v1.evaluation_pb2 import CounterProfile, Energy, EvalResult, KernelCounters, KernelUse, SanitizerRun

MEMORY, COMPUTE = "memory", "compute"
#: Share of peak below which neither memory nor arithmetic limits a kernel: Nsight Compute's rule SOLBottleneck.
BUSY = 0.6
#: Ids of the findings about errors of memory.
MEMORY_FINDINGS = ("M01", "M02", "M03", "M04", "M05")


def own_kernels(counters: CounterProfile) -> Sequence[KernelCounters]:
    """Return the candidate's own kernels; all if none is its own."""
    own = [kernel for kernel in counters.kernels if kernel.owner == KernelUse.OWNER_CANDIDATE]
    return own or counters.kernels


def slowest(counters: CounterProfile) -> KernelCounters | None:
    """Return the kernel that takes longest, one of the candidate's own if it has some; None if there is none."""
    return max(own_kernels(counters), key=lambda kernel: positive(kernel.duration_seconds), default=None)


def bound(kernel: KernelCounters) -> str:
    """Return MEMORY or COMPUTE, whichever is nearer to its limit; "" if neither is known.

    `roof_share` is the larger share of two, and one of them is that of device memory. Where a device does not count the
    operations of its tensor cores, the share of cycles in which they work stands for them.
    """
    memory, roof = _number(kernel.dram_throughput), _number(kernel.roof_share)
    arithmetic = max(roof if roof > memory else 0.0, _number(kernel.tensor_throughput))
    if arithmetic > memory:
        return COMPUTE
    return MEMORY if memory > 0 else ""


def is_waiting(kernel: KernelCounters) -> bool:
    """Return True if memory and arithmetic are both known to be far from their limits."""
    used = max(
        _number(kernel.dram_throughput),
        _number(kernel.sm_throughput),
        _number(kernel.tensor_throughput),
        _number(kernel.roof_share),
    )
    return 0 < used < BUSY


def roof_words(kernel: KernelCounters) -> str:
    """Return "0.0833 FLOP a byte, 340 GFLOP/s: 85% of the roof, memory-bound", as far as it is known; "" if nothing is."""
    intensity, rate = positive(kernel.arithmetic_intensity), positive(kernel.flops_per_second)
    place = f"{intensity:.3g} FLOP a byte, {roofline.scaled(rate, 'FLOP')}/s" if intensity and rate else ""
    roof, tensor, which = _number(kernel.roof_share), _number(kernel.tensor_throughput), bound(kernel)
    near = f"{percent(roof)} of the roof" if roof else ""
    if which == COMPUTE and tensor > roof:
        near = f"tensor cores busy {percent(tensor)} of the time"
    words = ", ".join(filter(None, [near, f"{which}-bound" if which else ""]))
    return f"{place}: {words}" if place and words else place or words


def occupancy_words(kernel: KernelCounters) -> str:
    """Return "66%, at most 75%": achieved and theoretical occupancy; "" if neither is known."""
    if not _number(kernel.achieved_occupancy) and not _number(kernel.theoretical_occupancy):
        return ""
    return f"{percent(kernel.achieved_occupancy)}, at most {percent(kernel.theoretical_occupancy)}"


def percent(share: float) -> str:
    """Return a share from 0 to 1 in percent; "?" if it is none."""
    return f"{share:.0%}" if 0 <= share <= 1 else "?"


def positive(value: float) -> float:
    """Return a number that can be a time, a rate or a ratio; otherwise 0."""
    return value if 0 < value < math.inf else 0.0


def energy_words(energy: Energy) -> str:
    """Return "12.3 mJ a call at 450 W"; "" if it is not known."""
    joules, watts = positive(energy.joules_per_call), positive(energy.watts)
    if not joules:
        return ""
    return f"{roofline.scaled(joules, 'J')} a call" + (f" at {watts:.0f} W" if watts else "")


def run_words(run: SanitizerRun) -> str:
    """Return "ok", "2 errors" or "not finished" for one tool of compute-sanitizer."""
    if run.errors > 0:
        return "1 error" if run.errors == 1 else f"{run.errors} errors"
    return "ok" if run.finished else "not finished"


def memory_findings(result: EvalResult) -> list[str]:
    """Return the ids of a result's findings about errors of memory, each once, in order."""
    return list(dict.fromkeys(finding.id for finding in result.findings if finding.id in MEMORY_FINDINGS))


def _number(share: float) -> float:
    return share if 0 < share <= 1 else 0.0
