"""A candidate as a report shows it, from a result or from a turn of a trajectory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from kerneldyno.client.jsonl import LINE_LABEL
from kerneldyno.client.problem_names import REFERENCE_LABEL
from kerneldyno.report import wording
from kerneldyno.report.elapsed import Span
from kerneldyno.report.shelf import Kept, Shelf
from kerneldyno.rewards import counters
from kerneldyno.rewards.factors import factor
from kerneldyno.rewards.speedups import (
    DEVICE,
    NAMES,
    WORDS,
    counted_in_json,
    counted_speedup,
    other_speedup,
)
from kerneldyno.rewards.trajectories import TurnRecord
from kerneldyno.rollout.report import verdict
from kerneldyno.rpc.candidate_files import as_one_text
from kerneldyno.rpc.jsonio import result_from_json
from kerneldyno.v1.evaluation_pb2 import EvalResult, Finding, KernelCounters, SpeedupKind, TimingStats

#: Outcome of problems that fit no device.
TOO_LARGE = "PROBLEM_TOO_LARGE"
#: Outcomes that say nothing about the candidate.
BLAMELESS = ("INFRASTRUCTURE_ERROR", "REFERENCE_ERROR", TOO_LARGE)
#: Longest fact in a candidate's details, in characters; longer texts are kept separately.
_FACT_CHARS = 2000
#: Longest name of a kernel, in characters, and most kernels of a candidate.
_NAME_CHARS, _MOST_KERNELS = 100, 16
#: Words for people, by the name that a turn's record has for its time.
_BY = {NAMES[kind]: words for kind, words in WORDS.items()}
_SEVERITIES = {Finding.SEVERITY_INFO: "info", Finding.SEVERITY_WARNING: "warning", Finding.SEVERITY_REJECT: "reject"}


@dataclass(frozen=True, slots=True)
class CandidateFinding:
    """A finding: its id, its severity ("info", "warning" or "reject"), and its evidence."""

    id: str
    severity: str
    evidence: str


@dataclass(frozen=True, slots=True)
class TimedWorkload:
    """A workload of a candidate: its name, the speedup that counts with its 95 % interval, and the times of both sides.

    There is no speedup if there is no reference to compare with.
    """

    name: str
    speedup: float | None
    low: float | None
    high: float | None
    reference_seconds: float | None
    candidate_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SeenKernel:
    """A launch of a candidate's kernel by its hardware counters. Shares are from 0 to 1; None is not known."""

    name: str
    seconds: float | None
    dram: float | None
    sm: float | None
    #: Share of the nearer limit; that of the tensor cores' cycles if their operations are not counted.
    roof: float | None
    #: "memory", "compute", or "" if it is not known.
    bound: str
    occupancy: float | None
    possible_occupancy: float | None
    limiter: str
    #: Its place on the roofline: operations for each byte of device memory, and operations a second.
    intensity: float | None
    rate: float | None
    #: What the device could do by these counters: bytes a second, and operations a second.
    memory_roof: float | None
    compute_roof: float | None


@dataclass(slots=True, kw_only=True)
class Candidate:
    """One verdict and its context. Times are in seconds."""

    id: str
    outcome: str
    problem: str = ""
    #: Identifies its reference, if no label names the problem.
    reference: str = ""
    #: Group of its problem if a label says it; None if the problem's name does.
    group: str | None = None
    #: Group, sample and turn, if it is a turn of an episode.
    place: tuple[str, int, int] | None = None
    #: The speedup that counts, with its 95 % interval; None unless it is correct and timed.
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    #: Which time that is: a value of `speedups.WORDS`; "" without a speedup.
    by: str = ""
    #: Speedup by the other time.
    other: float | None = None
    #: Times of both sides, by the time that counts.
    candidate_seconds: float | None = None
    reference_seconds: float | None = None
    #: Workloads that were timed, in order.
    workloads: list[TimedWorkload] = field(default_factory=list)
    #: Its own kernels, in order, as far as they have counters.
    kernels: list[SeenKernel] = field(default_factory=list)
    reward: float | None = None
    environment: str = ""
    #: Its times are those of a CPU or of Triton's interpreter.
    interpreted: bool = False
    #: A run of another request answered it; the stages belong to that run.
    shared: bool = False
    #: The line in the file was not a request at all.
    malformed: bool = False
    #: Cause of an infrastructure failure, in one word.
    cause: str = ""
    stages: list[tuple[str, float]] = field(default_factory=list)
    span: Span = field(default_factory=Span)
    findings: list[CandidateFinding] = field(default_factory=list)
    message: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    texts: list[tuple[str, Kept]] = field(default_factory=list)
    source: Kept | None = None

    @property
    def correct(self) -> bool:
        """Return whether its outcome is CORRECT."""
        return self.outcome == "CORRECT"

    @property
    def counts(self) -> bool:
        """Return whether denominators include it: there is a verdict on the candidate."""
        return self.outcome not in BLAMELESS and not self.malformed

    def kept(self) -> Iterator[Kept]:
        """Return its long texts."""
        yield from (text for _, text in self.texts)
        if self.source is not None:
            yield self.source


def colour(outcome: str) -> str:
    """Return the colour of an outcome in the terminal's cards; red, like any failure, for an unknown outcome."""
    known = EvalResult.Outcome.Value(outcome) if outcome in EvalResult.Outcome.keys() else EvalResult.RUNTIME_ERROR  # noqa: SIM118
    return wording.colour(known)


def of_result(result: EvalResult, shelf: Shelf, problem_label: str) -> Candidate:
    """Return the candidate of a result, without its source.

    Raises:
        ValueError: the result has enum values that this release does not know.
    """
    labels = result.labels
    candidate = _common(result, shelf)
    candidate.problem = labels.get(problem_label, "") or labels.get("group", "")
    candidate.reference = labels.get(REFERENCE_LABEL, "")
    if {"group", "sample", "turn"} <= set(labels) and labels["sample"].isdecimal() and labels["turn"].isdecimal():
        candidate.place = labels["group"], int(labels["sample"]), int(labels["turn"])
    return candidate


def of_turn(turn: TurnRecord, shelf: Shelf) -> Candidate:
    """Return the candidate of a turn with an outcome.

    Raises:
        ValueError: as for `of_result`.
    """
    result = result_from_json(dict(turn.result)) if turn.result else EvalResult()
    candidate = _common(result, shelf)
    candidate.id = result.id or f"{turn.group} sample {turn.sample} turn {turn.turn_index}"
    candidate.problem = turn.problem_id or turn.group
    candidate.place = turn.group, turn.sample, turn.turn_index
    candidate.outcome = turn.outcome
    candidate.reward = turn.reward
    found = verdict(turn)
    if turn.remeasured and found.correct is not None:
        again = turn.remeasured.get("outcome")
        candidate.facts.insert(
            0, ("measured again", f"{again}, {factor(counted_in_json(turn.remeasured), 3)}x; the smaller counts")
        )
        candidate.outcome = str(turn.outcome if found.correct or turn.outcome != "CORRECT" else again)
    if candidate.correct:
        candidate.speedup = positive(found.speedup)
        candidate.low, candidate.high = positive(found.low), positive(found.high)
        candidate.by = _BY.get(turn.speedup_kind, WORDS[DEVICE]) if candidate.speedup is not None else ""
    else:
        candidate.speedup = candidate.low = candidate.high = candidate.other = None
        candidate.by = ""
    if turn.reward is not None:
        parts = ", ".join(f"{name} {value:.4g}" for name, value in turn.parts.items() if value)
        candidate.facts.insert(0, ("reward", f"{turn.reward:.4g}" + (f" ({parts})" if parts else "")))
    if turn.extra.get("error"):
        candidate.message = candidate.message or str(turn.extra["error"])
    if turn.feedback:
        candidate.texts.insert(0, ("The model was told", shelf.keep(turn.feedback)))
    if text := as_one_text(turn.kernel_code, {path: str(text) for path, text in turn.kernel_files.items()}):
        candidate.source = shelf.keep(text)
    elif turn.response:
        candidate.texts.insert(0, ("The answer, which holds no candidate", shelf.keep(turn.response)))
    return candidate


def _common(result: EvalResult, shelf: Shelf) -> Candidate:
    right = result.outcome == EvalResult.CORRECT
    counted = counted_speedup(result)
    interval = counted.interval if right else None
    where = result.environment
    return Candidate(
        id=result.id,
        outcome=EvalResult.Outcome.Name(result.outcome),
        speedup=positive(counted.value) if right else None,
        low=None if interval is None else positive(interval.low),
        high=None if interval is None else positive(interval.high),
        by=counted.words if right and positive(counted.value) else "",
        other=positive(other_speedup(result, counted).value) if right else None,
        candidate_seconds=_median(counted.candidate),
        reference_seconds=_median(counted.reference),
        workloads=_workloads(result, counted.kind),
        kernels=[_kernel(kernel) for kernel in counters.own_kernels(result.counters)[:_MOST_KERNELS]],
        environment=_fingerprint(result),
        interpreted=where.triton_interpreter or where.device.startswith("cpu"),
        shared=result.cached or result.merged,
        malformed=LINE_LABEL in result.labels,
        cause=result.infrastructure_error.cause[:_FACT_CHARS],
        stages=[
            (wording.stage_words(span.stage), max(span.duration.ToNanoseconds(), 0) / 1e9) for span in result.stages
        ],
        findings=[
            CandidateFinding(finding.id, _SEVERITIES.get(finding.severity, "info"), finding.evidence)
            for finding in result.findings
        ],
        message=result.message,
        facts=[(name, value[:_FACT_CHARS]) for name, value in wording.facts(result)],
        texts=[(heading, shelf.keep(text)) for heading, text in wording.texts(result)],
    )


def _workloads(result: EvalResult, kind: SpeedupKind.ValueType) -> list[TimedWorkload]:
    found = []
    for each, name in zip(result.workloads, wording.workload_names(result.workloads), strict=True):
        one = counted_speedup(each, kind)
        speedup, own = positive(one.value), _median(one.candidate)
        if each.outcome == EvalResult.CORRECT and (speedup is not None or own is not None):
            ends = positive(one.low), positive(one.high)
            found.append(TimedWorkload(name, speedup, *ends, _median(one.reference), own))
    return found


def _kernel(kernel: KernelCounters) -> SeenKernel:
    seconds, rate = positive(kernel.duration_seconds), positive(kernel.flops_per_second)
    dram, roof, bound = _share(kernel.dram_throughput), _share(kernel.roof_share), counters.bound(kernel)
    moved = positive(kernel.dram_bytes)
    tensor = _share(kernel.tensor_throughput) or 0.0
    by_arithmetic = bound == counters.COMPUTE and roof is not None and roof > (dram or 0.0)
    return SeenKernel(
        name=kernel.name[:_NAME_CHARS],
        seconds=seconds,
        dram=dram,
        sm=_share(kernel.sm_throughput),
        roof=max(roof or 0.0, tensor) if bound == counters.COMPUTE else roof,
        bound=bound,
        occupancy=_share(kernel.achieved_occupancy),
        possible_occupancy=_share(kernel.theoretical_occupancy),
        limiter=kernel.occupancy_limiter[:_NAME_CHARS],
        intensity=positive(kernel.arithmetic_intensity),
        rate=rate,
        memory_roof=moved / seconds / dram if moved and seconds and dram else None,
        compute_roof=rate / roof if rate and roof and by_arithmetic else None,
    )


def _share(value: float) -> float | None:
    return value if 0 <= value <= 1 else None


def _median(timing: TimingStats | None) -> float | None:
    return None if timing is None else positive(timing.median_seconds)


def _fingerprint(result: EvalResult) -> str:
    """Return where it ran; times are comparable only if this is the same."""
    where = result.environment
    if not where.device:
        return ""
    versions = [("driver", where.driver_version), ("CUDA", where.cuda_version), ("torch", where.torch_version)]
    triton = where.triton_version + (" (interpreter)" if where.triton_interpreter else "")
    parts = [f"{name} {version}" for name, version in [*versions, ("triton", triton)] if version]
    return ", ".join([where.device_model or where.device, *parts])


def positive(value: object) -> float | None:
    """Return `value` if it can be a time or a ratio, else None."""
    return float(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None
