"""Baselines in a file: the times of references, so that results of different days compare with the same ones.

A baseline is the time of one form of a reference (eager, compiled, ...) for one problem and workload, on one kind of
device. Times of two days differ by more than times of one evaluation, in which both sides take turns: clocks, drivers and
versions change. So each baseline carries what it was measured with, and a comparison names every difference.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kerneldyno.client.problem_names import PROBLEM_LABEL, REFERENCE_LABEL
from kerneldyno.report.candidates import positive
from kerneldyno.report.wording import workload_names
from kerneldyno.v1.evaluation_pb2 import BaselineResult, EvalResult, ReferenceBackend, TimingStats, WorkloadResult

#: The form of a reference that the request compares with, whatever it is.
REFERENCE = "reference"
#: Clocks that differ by more than this share are named.
CLOCK_SHARE = 0.02
#: A reference that took another time than the stored one, by more than this share, is named.
DRIFT_SHARE = 0.05
_VERSION = 1
_PREFIX = "REFERENCE_BACKEND_"
#: What must be equal for times to compare, and how a warning calls it.
_SAME = {
    "device_model": "device",
    "driver_version": "driver",
    "cuda_version": "CUDA",
    "torch_version": "torch",
    "triton_version": "Triton",
    "kerneldyno_version": "KernelDyno",
}


class NotBaselinesError(Exception):
    """The file does not contain baselines of a known form."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """What a time is of."""

    problem: str
    workload: str
    """The name of the workload; "" if the problem has none."""
    form: str
    """REFERENCE, a baseline of the request ("eager", "torch_compile", ...), or a library of it ("library NAME")."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The stored time of one subject."""

    problem: str
    workload: str
    form: str
    median_seconds: float
    """Device time of one call: the median over `results`."""
    end_to_end_seconds: float
    """The same, end to end; 0 if it was not measured."""
    results: int
    """Number of evaluations in which it was measured."""
    spread: float
    """Largest divided by smallest time of these evaluations."""
    sm_clock_mhz: int
    """Clock of the multiprocessors, median; 0 where the device does not report it."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        """What it is the time of."""
        return Subject(self.problem, self.workload, self.form)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate beside a stored baseline."""

    id: str
    baseline: Baseline
    candidate_seconds: float
    speedup: float
    """The stored time divided by the candidate's."""
    measured_speedup: float
    """The speedup of the candidate's own evaluation, beside a reference of that moment; 0 if it has none."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """One time of one evaluation."""

    subject: Subject
    reference: TimingStats
    reference_end_to_end: TimingStats
    candidate: TimingStats
    speedup: float


def collect(results: Iterable[EvalResult], problem_label: str = PROBLEM_LABEL) -> list[Baseline]:
    """Return the baselines of results: one for each problem, workload and form.

    Only CORRECT, timed candidates count. Results on several kinds of devices cannot be collected into one file.

    Raises:
        NotBaselinesError: the results are of several devices or versions, or none has a time.
    """
    seen: dict[Subject, list[tuple[_Measured, int]]] = {}
    environments: list[dict[str, str]] = []
    for result in results:
        for measured in _measured(result, problem_label):
            seen.setdefault(measured.subject, []).append((measured, _clock(result)))
            if (environment := _environment(result)) not in environments:
                environments.append(environment)
    if not seen:
        raise NotBaselinesError(
            "no result has the time of a reference: only CORRECT candidates that were timed have one"
        )
    if len(environments) > 1:
        unlike = "; ".join(_differences(environments[0], environments[1]))
        raise NotBaselinesError(f"the results were measured with different devices or versions: {unlike}")
    return [_baseline(subject, measured, environments[0]) for subject, measured in sorted(seen.items())]


def compare(
    results: Iterable[EvalResult], baselines: Iterable[Baseline], problem_label: str = PROBLEM_LABEL
) -> tuple[list[Comparison], list[str]]:
    """Compare candidates with stored baselines.

    Returns:
        A comparison for each candidate, workload and stored form, and warnings: what differs between the two days.
    """
    stored: dict[tuple[str, str], list[Baseline]] = {}
    for baseline in baselines:
        stored.setdefault((baseline.problem, baseline.workload), []).append(baseline)
    found: list[Comparison] = []
    warnings: dict[str, int] = {}
    for result in results:
        for measured in _measured(result, problem_label):
            if measured.subject.form != REFERENCE:
                continue  # a candidate has the same time beside each form
            subject = measured.subject
            matching = stored.get((subject.problem, subject.workload), [])
            if not matching:
                name = f"{subject.problem}, {subject.workload}" if subject.workload else subject.problem
                warnings[f"{name} is not among the baselines"] = 1
            for baseline in matching:
                seconds = measured.candidate.median_seconds
                found.append(
                    Comparison(result.id, baseline, seconds, baseline.median_seconds / seconds, measured.speedup)
                )
                for text in _warnings(result, measured, baseline):
                    warnings[text] = warnings.get(text, 0) + 1
    return found, [text if count == 1 else f"{text} ({count} times)" for text, count in warnings.items()]


def dumped(baselines: Iterable[Baseline]) -> str:
    """Return the text of a file of baselines."""
    document = {"kerneldyno_baselines": _VERSION, "baselines": [asdict(one) for one in baselines]}
    return json.dumps(document, indent=1) + "\n"


def loaded(text: str) -> list[Baseline]:
    """Return the baselines of a file. Raises NotBaselinesError."""
    try:
        document = json.loads(text)
        version, rows = document["kerneldyno_baselines"], document["baselines"]
        if version != _VERSION:
            raise NotBaselinesError(f"is of version {version}, and this release reads {_VERSION}")
        return [_loaded(row) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        advice = "is not a file of baselines: make one with `kerneldyno baseline save`"
        raise NotBaselinesError(f"{advice} ({type(error).__name__}: {error})") from error


def _loaded(row: Mapping[str, Any]) -> Baseline:
    if (median := positive(row["median_seconds"])) is None:
        raise ValueError(f"the time {row['median_seconds']!r} is none")
    return Baseline(
        problem=str(row["problem"]),
        workload=str(row["workload"]),
        form=str(row["form"]),
        median_seconds=median,
        end_to_end_seconds=float(row["end_to_end_seconds"]),
        results=int(row["results"]),
        spread=float(row["spread"]),
        sm_clock_mhz=int(row["sm_clock_mhz"]),
        environment={str(name): str(value) for name, value in row["environment"].items()},
    )


def _measured(result: EvalResult, problem_label: str) -> Iterator[_Measured]:
    problem = result.labels.get(problem_label) or result.labels.get(REFERENCE_LABEL) or result.id.rpartition("/")[0]
    named = zip(workload_names(result.workloads), result.workloads, strict=True)
    parts: list[tuple[str, EvalResult | WorkloadResult]] = [*named]
    for name, part in parts or [("", result)]:
        if part.outcome != EvalResult.CORRECT or not _has_time(part.candidate_timing):
            continue
        if _has_time(part.reference_timing):
            own = Subject(problem, name, REFERENCE)
            yield _Measured(
                own, part.reference_timing, part.reference_end_to_end, part.candidate_timing, part.speedup or 0.0
            )
        for one in part.baselines:
            if _has_time(one.reference_timing):
                subject = Subject(problem, name, _form(one))
                yield _Measured(
                    subject, one.reference_timing, one.reference_end_to_end, part.candidate_timing, one.speedup
                )


def _form(baseline: BaselineResult) -> str:
    if baseline.name:
        return f"library {baseline.name}"
    return ReferenceBackend.Name(baseline.backend).removeprefix(_PREFIX).lower()


def _has_time(timing: TimingStats) -> bool:
    return positive(timing.median_seconds) is not None


def _clock(result: EvalResult) -> int:
    return result.device_state.sm_clock_mhz_before


def _environment(result: EvalResult) -> dict[str, str]:
    return {name: str(getattr(result.environment, name)) for name in _SAME}


def _baseline(subject: Subject, measured: list[tuple[_Measured, int]], environment: Mapping[str, str]) -> Baseline:
    times = [one.reference.median_seconds for one, _ in measured]
    end_to_end = [one.reference_end_to_end.median_seconds for one, _ in measured]
    return Baseline(
        problem=subject.problem,
        workload=subject.workload,
        form=subject.form,
        median_seconds=statistics.median(times),
        end_to_end_seconds=statistics.median(end_to_end),
        results=len(times),
        spread=max(times) / min(times),
        sm_clock_mhz=round(statistics.median(clock for _, clock in measured)),
        environment=dict(environment),
    )


def _warnings(result: EvalResult, measured: _Measured, baseline: Baseline) -> Iterator[str]:
    yield from _differences(baseline.environment, _environment(result))
    clock = _clock(result)
    if clock and baseline.sm_clock_mhz and abs(clock / baseline.sm_clock_mhz - 1) > CLOCK_SHARE:
        yield f"the clock was {baseline.sm_clock_mhz} MHz then and {clock} MHz now"
    if baseline.form == REFERENCE:
        drift = measured.reference.median_seconds / baseline.median_seconds
        if abs(drift - 1) > DRIFT_SHARE:
            yield (
                f"{baseline.problem}{', ' if baseline.workload else ''}{baseline.workload}: the reference took"
                f" {drift:.2f} times as long as the stored one"
            )


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{word} {then.get(name) or 'unknown'} then and {now.get(name) or 'unknown'} now"
        for name, word in _SAME.items()
        if then.get(name) != now.get(name)
    ]
