"""Errors of memory in a right candidate, by compute-sanitizer: what its tools say, and what that means.

Only errors in the candidate's own kernels count. The tools run inside the candidate's process, so one that is hostile
can hide its errors; one that is careless cannot. What the judge sees by itself is in `checks/repetition.py`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.cuda_tools import find
from ...shared.enums import MemoryErrors, Sanitize
from ...shared.kernel_names import plain
from ...shared.spec import CandidateSpec, EvalSpec
from ...shared.tracebacks import CANDIDATE_FILE
from ..checks.repetition import MEMORY_RULES
from ..comparison.evidence import Mismatch
from ..results import verdict
from ..results.record import Record
from .watched import Seen, Watcher

#: The tools, in the order in which they run, and the finding that stands for their errors.
_TOOLS = {"memcheck": "", "racecheck": "M03", "initcheck": "M04", "synccheck": "M05"}
#: What stands for the number of a trial in evidence: a call under compute-sanitizer (IncorrectEvidence.trial).
_SANITIZED_CALL = -4
#: Names that compilers give the sources of `load_inline`.
_INLINE = ("cuda_sources", "cpp_sources", "cuda.cu", "main.cpp")
_MOST_REPORTS, _MOST_COUNT = 8, 1 << 30
#: If the tools before took longer than this together, in seconds, no further one is started. It is less than the limit of
#: one, so a candidate that hangs under a tool does so once.
_MOST_SECONDS = 170.0
_TOO_LATE = "not started, because the tools before it took too long"
_NAME, _TEXT = 200, 300
_MISSING = (
    "compute-sanitizer is not installed on the node: install it there, as CUDA's toolkit does, below CUDA_HOME,"
    " /usr/local/cuda or on PATH of the evaluator"
)


def is_wanted(spec: EvalSpec, result: pb.EvalResult) -> bool:
    """Return True if the request asks for the tools, and a right candidate's result is one of those that it names."""
    if spec.inspection.sanitize == Sanitize.WINNERS:
        return max(result.speedup, result.end_to_end_speedup) > 1
    return spec.inspection.sanitize == Sanitize.ALL


async def examine(watcher: Watcher) -> pb.SanitizerReport:
    """Run the candidate once under each tool, and return what they said."""
    if find("compute-sanitizer") is None:
        return pb.SanitizerReport(runs=[pb.SanitizerRun(tool=tool, detail=_MISSING) for tool in _TOOLS])
    runs: list[pb.SanitizerRun] = []
    for tool in _TOOLS:
        if sum(run.seconds for run in runs) > _MOST_SECONDS:
            runs.append(pb.SanitizerRun(tool=tool, detail=_TOO_LATE))
        else:
            runs.append(run_of(tool, await watcher.watch({"name": tool}, warm=False), watcher.spec.candidate))
    return pb.SanitizerReport(runs=runs)


def run_of(tool: str, seen: Seen, candidate: CandidateSpec) -> pb.SanitizerRun:
    """Return one tool's report, with the errors in the candidate's own kernels."""
    rows = seen.report.get("errors")
    own = {plain(name) for name in seen.own}
    files = {CANDIDATE_FILE, *_INLINE, *(PurePosixPath(path).name for path, _ in candidate.kernel_files)}
    found = [
        error for row in (rows if isinstance(rows, list) else []) if (error := _error(row, own, files)) is not None
    ]
    finished = seen.report.get("finished") is True and (not seen.failed or bool(found))
    return pb.SanitizerRun(
        tool=tool,
        finished=finished,
        detail="" if finished else verdict.clean(seen.failed or "the tool wrote no summary", _TEXT),
        errors=min(sum(error.count for error in found), _MOST_COUNT),
        reports=found[:_MOST_REPORTS],
        seconds=seen.seconds,
    )


def _error(row: Any, own: set[str], files: set[str]) -> pb.MemoryError | None:
    """Return an error of one of the candidate's own kernels; None for others."""
    if not isinstance(row, dict):
        return None
    kernel, file, line, count = str(row.get("kernel", "")), str(row.get("file", "")), row.get("line"), row.get("count")
    name = PurePosixPath(file).name
    if plain(kernel) not in own and name not in files:
        return None
    what = str(row.get("what", ""))
    if what.startswith("Warning"):  # the tool itself is not sure
        return None
    return pb.MemoryError(
        what=verdict.clean(what, _TEXT),
        kernel=verdict.clean(kernel, _NAME),
        file=verdict.clean(name, _NAME),
        line=line if type(line) is int and 0 <= line < 1 << 31 else 0,
        detail=verdict.clean(str(row.get("detail", "")), _TEXT),
        count=count if type(count) is int and 0 < count < _MOST_COUNT else 1,
    )


def apply(report: pb.SanitizerReport, result: pb.EvalResult, record: Record, spec: EvalSpec) -> pb.EvalResult:
    """Add findings for the errors in a report to a right candidate's result, or return the result that replaces it."""
    found: dict[str, str] = {}
    for run in report.runs:
        for error in run.reports:
            found.setdefault(_TOOLS[run.tool] or ("M02" if "read" in error.what else "M01"), _sentence(run.tool, error))
    severity = pb.Finding.SEVERITY_WARNING
    findings = [verdict.finding(name, severity, f"{MEMORY_RULES[name]}: {text}") for name, text in found.items()]
    if findings and spec.checks.memory_errors == MemoryErrors.REJECT:
        mismatch = Mismatch("memory", "memory", findings[0].evidence)
        result = verdict.incorrect(mismatch, _SANITIZED_CALL, record.report(), [*record.findings, *findings])
    else:
        result.findings.extend(findings)
    result.sanitizer.CopyFrom(report)
    return result


def _sentence(tool: str, error: pb.MemoryError) -> str:
    times = f", {error.count} times" if error.count > 1 else ""
    place = f"{error.file}:{error.line}"
    if place in error.what:  # a race names both of its places
        return f"{error.what}{times} ({tool})"
    where = f" at {place}" if error.file else ""
    return f"{error.what} in {plain(error.kernel) or 'a kernel'}{where}{times} ({tool})"
