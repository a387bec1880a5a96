"""Hardware counters of a right candidate's kernels, by Nsight Compute: advice for whoever optimises them.

The rows come from the candidate's process, so they are read with suspicion and nothing is judged by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.cuda_tools import find
from ...shared.kernel_names import plain
from ..checks.provenance import owner
from ..results.verdict import clean
from .watched import Seen, Watcher

#: Most rows, reasons and pieces of advice that are passed on, and lengths of texts in characters.
_MOST_ROWS, _MOST_STALLS, _MOST_ADVICE = 16, 5, 8
_NAME, _TEXT, _WORD = 200, 600, 60
_LARGEST = 1e18
_MISSING = (
    "Nsight Compute (ncu) is not installed on the node: install it there, as CUDA's toolkit does, below CUDA_HOME,"
    " /usr/local/cuda or on PATH of the evaluator"
)
_FORBIDDEN = (
    "the driver of the node lets only administrators read counters: load its kernel module with the option"
    " NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)
#: Reasons for which warps wait, by the names of Nsight Compute. Source: its Profiling Guide, "Warp Scheduler States".
_STALLS = {
    "long_scoreboard": "waits for data from global or local memory",
    "short_scoreboard": "waits for data from shared memory or a special function",
    "barrier": "waits for other warps at a barrier",
    "membar": "waits for a memory barrier",
    "mio_throttle": "the queue of memory instructions is full",
    "lg_throttle": "the queue of global and local memory is full",
    "tex_throttle": "the queue of the texture unit is full",
    "math_pipe_throttle": "the arithmetic unit is busy",
    "gmma": "waits for the tensor cores",
    "wait": "waits a fixed number of cycles for the previous instruction",
    "not_selected": "could run, but another warp was chosen",
    "no_instruction": "waits for its next instruction to be fetched",
    "drain": "waits for its last stores",
    "dispatch_stall": "the dispatcher holds it back",
    "branch_resolving": "waits for a branch",
    "imc_miss": "waits for a constant",
    "sleeping": "sleeps",
    "misc": "another reason",
    "warpgroup_arrive": "waits for its group of warps",
}
_SHARES = (
    "dram_throughput",
    "l2_throughput",
    "l1_throughput",
    "sm_throughput",
    "tensor_throughput",
    "achieved_occupancy",
    "theoretical_occupancy",
    "bank_conflict_share",
    "roof_share",
)
_NUMBERS = ("duration_seconds", "instructions_per_cycle", "arithmetic_intensity", "flops_per_second")
_COUNTS = ("spill_instructions", "bank_conflicts", "dram_bytes", "flops", "shared_memory_bytes")


async def read(watcher: Watcher, profile: pb.KernelProfile | None) -> pb.CounterProfile:
    """Run the candidate under Nsight Compute, and return its counters, or why there are none.

    `profile` says which kernels are the candidate's own; without it, or without such kernels, all are observed.
    """
    if find("ncu") is None:
        return pb.CounterProfile(unavailable=_MISSING)
    uses = [] if profile is None else profile.kernels
    own = dict.fromkeys(plain(use.name) for use in uses if use.owner == pb.KernelUse.OWNER_CANDIDATE)
    async with watcher.context.counting:
        seen = await watcher.watch({"name": "ncu", "kernels": [name for name in own if name]}, warm=True)
    return profile_of(seen)


def profile_of(seen: Seen) -> pb.CounterProfile:
    """Return the counters in a report."""
    tool = clean(str(seen.report.get("version", "")), _WORD)
    rows = seen.report.get("kernels")
    kernels = (
        [_row(row, seen.own) for row in rows[:_MOST_ROWS] if isinstance(row, dict)] if isinstance(rows, list) else []
    )
    unavailable = ""
    if not kernels:
        said = clean(seen.failed or str(seen.report.get("said", "")), _TEXT)
        forbidden = seen.report.get("forbidden") is True
        unavailable = _FORBIDDEN if forbidden else f"Nsight Compute saw no kernel: {said}".removesuffix(": ")
    return pb.CounterProfile(kernels=kernels, tool=tool, unavailable=unavailable, seconds=seen.seconds)


def _row(row: dict[str, Any], own: Sequence[str]) -> pb.KernelCounters:
    name = str(row.get("name", ""))
    counters = pb.KernelCounters(
        name=clean(name, _NAME),
        # The tool writes parameters and scopes in its own way, so names are compared without them.
        owner=owner(name, (name,) if plain(name) in map(plain, own) else ()),
        grid=_sizes(row.get("grid")),
        block=_sizes(row.get("block")),
        registers=int(min(_number(row.get("registers")), 1 << 20)),
        occupancy_limiter=clean(str(row.get("occupancy_limiter", "")), _WORD),
        stalls=_stalls(row.get("stalls")),
        advice=_advice(row.get("advice")),
    )
    for field in _SHARES:
        setattr(counters, field, min(_number(row.get(field)), 1.0))
    for field in _NUMBERS:
        setattr(counters, field, _number(row.get(field)))
    for field in _COUNTS:
        setattr(counters, field, int(_number(row.get(field))))
    return counters


def _number(said: Any) -> float:
    """Return a number that a row has, or 0."""
    plausible = type(said) in (int, float) and math.isfinite(said) and 0 <= said < _LARGEST
    return float(said) if plausible else 0.0


def _sizes(said: Any) -> list[int]:
    return [int(min(_number(size), (1 << 31) - 1)) for size in said[:3]] if isinstance(said, list) else []


def _stalls(said: Any) -> list[pb.StallReason]:
    pairs = said[:100] if isinstance(said, list) else []
    found = [
        pb.StallReason(
            reason=clean(str(pair[0]), _WORD), meaning=_STALLS.get(str(pair[0]), ""), share=min(_number(pair[1]), 1.0)
        )
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2
    ]
    return sorted(found, key=lambda stall: -stall.share)[:_MOST_STALLS]


def _advice(said: Any) -> list[pb.Advice]:
    return [
        pb.Advice(
            rule=clean(str(each.get("rule", "")), _WORD),
            text=clean(str(each.get("text", "")), _TEXT),
            promise=_number(each.get("promise")),
        )
        for each in (said[:_MOST_ADVICE] if isinstance(said, list) else [])
        if isinstance(each, dict)
    ]
