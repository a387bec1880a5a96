"""What tools saw inside a right candidate, as short facts of a card: counters, compute-sanitizer, determinism, energy."""

from __future__ import annotations

from collections.abc import Iterable

from kerneldyno.report.units import seconds
from kerneldyno.rewards import counters
from kerneldyno.v1.evaluation_pb2 import EvalResult, KernelCounters

#: Longest name of a kernel, and longest reason, in characters.
_NAME, _REASON = 60, 300


def facts(result: EvalResult) -> Iterable[tuple[str, str]]:
    """Yield names and values; values are not yet made plain."""
    if result.correctness.HasField("deterministic") and not result.correctness.deterministic:
        yield "deterministic", "no: a second call on the same inputs gave other bytes"
    for kernel in counters.own_kernels(result.counters):
        yield "counters", kernel_words(kernel)
    if result.counters.unavailable:
        yield "counters", f"none: {one_line(result.counters.unavailable, _REASON)}"
    if result.HasField("sanitizer"):
        yield "sanitizer", sanitizer_words(result)
    if words := energy_words(result):
        yield "energy", words


def kernel_words(kernel: KernelCounters) -> str:
    """Return one kernel in a line: "add: 44.5 us, DRAM 85%, SM 6%, occupancy 81%, at most 100%, 85% of the roof"."""
    limiter = f" (by {one_line(kernel.occupancy_limiter, _NAME)})" if kernel.occupancy_limiter else ""
    occupancy = counters.occupancy_words(kernel)
    told = [
        duration(kernel),
        f"DRAM {counters.percent(kernel.dram_throughput)}",
        f"SM {counters.percent(kernel.sm_throughput)}",
        f"occupancy {occupancy}{limiter}" if occupancy else "",
        counters.roof_words(kernel),
    ]
    return f"{one_line(kernel.name, _NAME) or '(no name)'}: {', '.join(filter(None, told))}"


def duration(kernel: KernelCounters) -> str:
    """Return how long a kernel took; "" if that is not known."""
    value = counters.positive(kernel.duration_seconds)
    return seconds(value) if value else ""


def sanitizer_words(result: EvalResult) -> str:
    """Return what each tool said: "memcheck ok, racecheck 2 errors", and if none finished, why."""
    runs = result.sanitizer.runs
    words = ", ".join(f"{one_line(run.tool, _NAME)} {counters.run_words(run)}" for run in runs)
    why = next((run.detail for run in runs if run.detail), "")
    none = why and not any(run.finished or run.errors for run in runs)
    return (words or "no tool ran") + (f": {one_line(why, _REASON)}" if none else "")


def energy_words(result: EvalResult) -> str:
    """Return the energy of a call of the candidate, and of the reference if it is known; "" if neither is."""
    own, reference = counters.energy_words(result.energy), counters.energy_words(result.reference_energy)
    return ", ".join(filter(None, [own, f"the reference {reference}" if reference else ""]))


def one_line(text: str, limit: int) -> str:
    """Return text from outside on one line, at most `limit` characters."""
    words = " ".join(text[: 4 * limit].split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
