"""Put a result into words, for the terminal and the report: facts, texts, durations, speedups, and its colour."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from kerneldyno.report import inspected
from kerneldyno.report.units import seconds, size
from kerneldyno.rewards import roofline
from kerneldyno.rewards.factors import factor
from kerneldyno.rewards.speedups import (
    DEVICE,
    CountedSpeedup,
    as_called,
    counted_speedup,
    most_paid,
    other_speedup,
)
from kerneldyno.rpc.jsonio import stage_name
from kerneldyno.v1.evaluation_pb2 import (
    LAUNCH_MODE_CUDA_GRAPH,
    EvalResult,
    ExceptionEvidence,
    Finding,
    KernelCode,
    KernelProfile,
    MemoryUse,
    NativeBuild,
    ReferenceBackend,
    Stage,
    StageSpan,
    TimingStats,
    WorkloadResult,
)

_GOOD, _BAD, _ODD = "green", "red", "yellow"
#: Colours of outcomes: correct; the candidate's fault; infrastructure's or nobody's.
_COLOURS = {
    EvalResult.CORRECT: _GOOD,
    EvalResult.INVALID: _ODD,
    EvalResult.REFERENCE_ERROR: _ODD,
    EvalResult.INFRASTRUCTURE_ERROR: _ODD,
    EvalResult.PROBLEM_TOO_LARGE: _ODD,
}
#: Kinds of wrong outputs without numbers to compare.
_NOT_NUMERIC = ("structure", "shape", "dtype", "device")
#: Digits of a speedup when shown with its interval.
_EXACT = 3
#: Longest name of a workload, in characters.
_NAME_CHARS = 100
#: Most kernels whose registers are shown.
_MOST_KERNELS = 8
_REGIMES = {
    TimingStats.REGIME_QUEUED_AHEAD: "queued ahead: device time is without the host's work",
    TimingStats.REGIME_AS_CALLED: "as called: the host's work is in both times",
}

_HEADERS = {NativeBuild.HEADERS_LEAN: "lean headers", NativeBuild.HEADERS_FULL: "full headers"}


def stage_words(stage: Stage.ValueType) -> str:
    """Return "awaiting lease" for STAGE_AWAITING_LEASE."""
    return stage_name(stage).replace("_", " ")


def colour(outcome: EvalResult.Outcome.ValueType) -> str:
    """Return green if correct, red if the candidate is at fault, yellow if infrastructure or nobody is."""
    return _COLOURS.get(outcome, _BAD)


def times(speedup: float) -> str:
    """Return a speedup, or another ratio, as text."""
    return f"{factor(speedup)}x"


def speedup_words(result: EvalResult) -> str:
    """Return the speedup that counts, and by which time if that is not device time; "" if there is none."""
    counted = counted_speedup(result)
    if not counted.value:
        return ""
    return times(counted.value) + ("" if counted.kind == DEVICE else f" {counted.words}")


def facts(result: EvalResult) -> Iterable[tuple[str, str]]:
    """Yield names and values of a result, except its message and long texts; values are not yet made plain."""
    yield from speedups(result)
    yield from _workloads(result)
    for baseline in result.baselines:
        backend = ReferenceBackend.Name(baseline.backend).removeprefix("REFERENCE_BACKEND_").lower().replace("_", " ")
        one = counted_speedup(baseline, counted_speedup(result).kind)
        yield (
            f"beside {baseline.name or backend}",
            baseline.error or (_speedup(one) if one.interval is not None else times(one.value)),
        )
    if result.HasField("candidate_timing"):
        yield "candidate", _timing(result.candidate_timing)
    if result.HasField("reference_timing"):
        yield "reference", _timing(result.reference_timing)
    if not as_called(result):  # otherwise it would be the same again
        if result.HasField("candidate_end_to_end"):
            yield "candidate, end to end", _timing(result.candidate_end_to_end)
        if result.HasField("reference_end_to_end"):
            yield "reference, end to end", _timing(result.reference_end_to_end)
    if regime := _REGIMES.get(result.candidate_timing.regime):
        yield "regime", regime
    if result.HasField("timing_effort"):
        effort = result.timing_effort
        calls = f"{effort.candidate_calls} calls of the candidate, {effort.reference_calls} of the reference"
        yield "timed in", f"{seconds(effort.lease_seconds)}, {effort.rounds} rounds, {calls}"
    if roof := roofline.words(result.roofline):
        yield "roofline", roof
    if result.memory_use.planned_bytes:
        yield "memory", _memory(result.memory_use)
    if result.HasField("coverage"):
        yield "coverage", f"{result.coverage:.1%} of device time in the candidate's kernels{_others(result.profile)}"
    for code in result.kernel_code[:_MOST_KERNELS]:
        yield "kernel", code_words(code)
    if (more := len(result.kernel_code) - _MOST_KERNELS) > 0:
        yield "kernel", f"and {more} more"
    for build in result.builds:
        yield "build", build_words(build)
    if result.HasField("correctness"):
        yield "correctness", _correctness(result)
    yield from inspected.facts(result)
    yield from _evidence(result)
    yield from findings(result)
    environment = result.environment
    if environment.device:
        triton = f"triton {environment.triton_version}{' (interpreter)' if environment.triton_interpreter else ''}"
        yield (
            "where",
            f"{environment.device_model} ({environment.node_id} {environment.device}), "
            f"torch {environment.torch_version}, {triton}",
        )
    if result.stages:
        yield "stages", ", ".join(_stage(span) for span in result.stages)
    if result.cached:
        yield "cached", "an earlier run of the same work answered"
    if result.merged:
        yield "merged", "a run that another request had started answered"
    if result.id:
        yield "id", result.id
    if result.digest:
        yield "digest", result.digest


def speedups(result: EvalResult) -> Iterable[tuple[str, str]]:
    """Yield both speedups with their intervals; the one that counts first, and marked."""
    counted = counted_speedup(result)
    other = other_speedup(result, counted)
    if counted.unmeasured:
        yield "speedup", f"not measured {counted.words}, which is the time that counts"
    elif counted.interval is not None:
        mark = ", which counts" if other.interval is not None else ""
        yield "speedup", f"{_speedup(counted)}{mark}"
        if (most := most_paid(result, counted)) < counted.value:
            yield "paid", f"at most {times(most)}: queued ahead, the reference is faster (finding T31)"
    if other.interval is not None:
        yield "other speedup", _speedup(other)


def findings(result: EvalResult) -> Iterable[tuple[str, str]]:
    """Yield the severity and id of each finding, and its evidence."""
    for finding in result.findings:
        severity = Finding.Severity.Name(finding.severity).removeprefix("SEVERITY_").lower()
        yield f"{severity} {finding.id}", finding.evidence


def workload_names(workloads: Iterable[WorkloadResult]) -> list[str]:
    """Return a name for each workload, its own or else its value, at most 100 characters; none is there twice."""
    seen: Counter[str] = Counter()
    names = []
    for each in workloads:
        name = (each.workload.name or each.workload.value_json)[:_NAME_CHARS]
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _workloads(result: EvalResult) -> Iterable[tuple[str, str]]:
    """Yield what was found for each workload, and for all together."""
    kind = counted_speedup(result).kind
    for each, own in zip(result.workloads, workload_names(result.workloads), strict=True):
        one = counted_speedup(each, kind)
        name = f"workload {own}"
        if one.candidate is None:
            yield (
                name,
                EvalResult.Outcome.Name(each.outcome) + ("" if each.outcome != EvalResult.CORRECT else ", not timed"),
            )
            continue
        reference = f", the reference {seconds(one.reference.median_seconds)}" if one.reference is not None else ""
        speedup = f"{_speedup(one)}; " if one.interval is not None else ""
        yield name, f"{speedup}{seconds(one.candidate.median_seconds)}{reference}"
    summary = result.workload_summary
    if summary.timed and not summary.worst_speedup:
        yield "workloads", f"{summary.timed} of {summary.total} timed, with no reference to compare with"
    elif summary.timed:
        won = f"{summary.share_won:.0%} faster than the reference"
        means = f"worst {times(summary.worst_speedup)}, arithmetic mean {times(summary.mean_speedup)}"
        yield "workloads", f"{summary.timed} of {summary.total} timed: {won}, {means}, by device time"


def _speedup(one: CountedSpeedup) -> str:
    assert one.interval is not None
    value, low, high = (factor(number, _EXACT) for number in (one.value, one.interval.low, one.interval.high))
    return f"{value} {one.words} (95 % between {low} and {high})"


def _evidence(result: EvalResult) -> Iterable[tuple[str, str]]:
    match result.WhichOneof("evidence"):
        case "incorrect":
            wrong = result.incorrect
            share = f"{wrong.mismatched_elements} of {wrong.total_elements} elements" if wrong.total_elements else ""
            yield "wrong", f"{wrong.output}: {wrong.kind}; {wrong.detail or share}"
        case "runtime_error":
            crash = result.runtime_error
            how = f"signal {crash.signal}" if crash.signal else crash.kind
            if crash.HasField("exit_code"):
                how += f", exit status {crash.exit_code}"
            yield "how", f"{how} in stage {crash.stage}"
        case "timeout":
            yield "limit", f"{result.timeout.limit_seconds:g} s for stage {result.timeout.stage}"
        case "out_of_memory":
            limit = result.out_of_memory.limit_bytes
            of = f", limit {size(limit)}" if limit else ""
            yield "out of", f"{result.out_of_memory.memory} memory in stage {result.out_of_memory.stage}{of}"
        case "problem_too_large":
            large = result.problem_too_large
            need = f", needs at least {size(large.needed_bytes)}" if large.needed_bytes else ""
            yield "too large", f"{large.stage}: {size(large.device_bytes)} of {large.memory} memory to be had{need}"
        case "invalid":
            for violation in result.invalid.violations:
                if violation.description not in result.message:  # the message names the first few
                    yield violation.field or "request", violation.description
        case "infrastructure_error":
            failure = result.infrastructure_error
            retry = "; trying again may help" if failure.retryable else ""
            yield "cause", f"{failure.cause}: {failure.detail}{retry}"


def texts(result: EvalResult) -> Iterable[tuple[str, str]]:
    """Yield what the candidate or the reference raised and what the candidate wrote, as heading and raw text."""
    exceptions: dict[str, ExceptionEvidence] = {
        "compile_error": result.compile_error,
        "runtime_error": result.runtime_error.exception,
        "reference_error": result.reference_error,
    }
    raised = exceptions.get(result.WhichOneof("evidence") or "")
    if raised is not None and (raised.type or raised.message):
        whose = "The reference" if result.outcome == EvalResult.REFERENCE_ERROR else "The candidate"
        text = f"{raised.type}: {raised.message}"
        # The last line of a traceback repeats type and message.
        if raised.traceback:
            text = raised.traceback if raised.type in raised.traceback else f"{raised.traceback.rstrip()}\n{text}"
        yield f"{whose} raised", text
    if result.logs:
        yield "It wrote", result.logs


def _stage(span: StageSpan) -> str:
    return f"{stage_name(span.stage)} {seconds(span.duration.ToNanoseconds() / 1e9)}"


def _timing(timing: TimingStats) -> str:
    clock = TimingStats.Clock.Name(timing.clock).removeprefix("CLOCK_").lower().replace("_", " ")
    graph = ", as a CUDA graph" if timing.launch_mode == LAUNCH_MODE_CUDA_GRAPH else ""
    return (
        f"{seconds(timing.median_seconds)} (p10 {seconds(timing.p10_seconds)}, p90 {seconds(timing.p90_seconds)}, "
        f"{timing.samples} samples, clock: {clock}{graph})"
    )


def _others(profile: KernelProfile) -> str:
    """Return where the rest of the device time is spent."""
    shares = {
        "PyTorch's": profile.torch_share,
        "libraries'": profile.library_share,
        "copies and fills": profile.memory_share,
    }
    told = [f"{share:.1%} in {name}" for name, share in shares.items() if share >= 0.0005]
    return f" ({', '.join(told)})" if told else ""


def _memory(use: MemoryUse) -> str:
    limit = f", limit of the candidate {size(use.candidate_limit_bytes)}" if use.candidate_limit_bytes else ""
    return f"{size(use.planned_bytes)} planned{limit}"


def build_words(build: NativeBuild) -> str:
    """Return how native code was built: "native: lean headers, cached, 3.2 s"."""
    told = [
        "failed" if build.failed else "",
        _HEADERS.get(build.headers, ""),
        "cached" if build.cached else "",
        seconds(build.seconds) if build.seconds > 0 else "",
    ]
    return f"{build.name}: {', '.join(filter(None, told))}"


def code_words(code: KernelCode) -> str:
    """Return what a compiler made of a kernel: "add (triton): 40 registers, no spills, 1 KiB shared memory, 4 warps"."""
    told = [
        f"{code.registers} registers",
        f"{size(code.spill_bytes)} spilled or in local arrays" if code.spill_bytes else "no spills",
        f"{size(code.shared_memory_bytes)} shared memory",
        f"{code.warps} warps" if code.warps else "",
    ]
    return f"{code.name[:_NAME_CHARS]} ({code.origin}): {', '.join(filter(None, told))}"


def _correctness(result: EvalResult) -> str:
    """Return the trials, and the largest error if outputs were compared as numbers."""
    seen = result.correctness
    trials = f"{seen.passed_trials} of {seen.total_trials} trials"
    compared = seen.passed_trials > 0 or seen.max_error_ratio > 0
    if not compared or result.incorrect.kind in _NOT_NUMERIC:
        return trials
    ratio = times(seen.max_error_ratio) if math.isfinite(seen.max_error_ratio) else "infinitely more"
    share = f"; at least {seen.matched_share:.2%} of each output right" if seen.HasField("matched_share") else ""
    return f"{trials}, largest error {seen.max_abs_error:.3g} ({ratio} of what is allowed{share})"
