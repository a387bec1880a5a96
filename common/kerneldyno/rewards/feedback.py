"""Write the feedback on a model's last turn: short, structured, most useful first, within a budget of characters.

Sections come in the order of their use to the author of a kernel, and as many as fit the budget are kept: outcome and
own lines, largest mismatch and the inputs that show it, time against the reference, roofline, kernels by device time,
what limits the candidate and its slowest kernel, findings. The text never contains inputs, seeds or expected values,
because the evidence has none. Weaknesses of the problem (findings D...) and what a candidate printed are left out,
because they would teach the wrong thing. The text depends on the arguments alone. benchmarks/feedback.py measures the
value of its parts.
"""

from __future__ import annotations

import itertools
import math
import re
import signal
from collections.abc import Iterator

from kerneldyno.rewards import closer_look, counters, quoting, roofline
from kerneldyno.rewards.factors import factor
from kerneldyno.rewards.speedups import DEVICE, CountedSpeedup, as_called, counted_speedup, most_paid, other_speedup
from kerneldyno.rpc.validation import MISSING, top_field
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import Extraction

#: Widths in characters. verl keeps 256 characters of a tool's answer, in which the first two widths still fit.
_HEADLINE = 160
_SOURCE_LINE = 120
_NAME = 60
_SENTENCE = 200
_QUOTED_LINES = 24
_QUOTED_WIDTH = 160
_TOP_KERNELS = 5
_MOST_FINDINGS = 5
#: A larger error ratio means "not a finite number" (JSON has no infinity).
_LARGEST = 1e300
#: Duration in seconds below which a kernel takes about as long as its launch.
_SHORT_KERNEL = 5e-6
_MANY_LAUNCHES = 8
#: Most kernels that are named because they spill registers.
_MOST_SPILLING = 3

#: Triton's interpreter raises this in place of a kernel's own exception, which is its cause.
_INTERPRETER_ERROR = "InterpreterError"
#: Descriptions of a trial's inputs that need no knowledge of the judge.
_STRESS_WORDS = {
    pb.STRESS_KIND_SIGNS: "random signs",
    pb.STRESS_KIND_LARGE: "larger numbers, up to 200 times, and rows of one sign",
    pb.STRESS_KIND_ROWS: "a scale of its own for each row, some of them tiny, and a few outliers",
    pb.STRESS_KIND_SPARSE: "mostly zeros, rows of zeros, and rows of equal elements",
    pb.STRESS_KIND_SORTED: "rows in order, of both signs",
    pb.STRESS_KIND_WAVE: "numbers of both signs that become tiny along a row and grow again",
    pb.STRESS_KIND_PATCH: "usual numbers but for one patch of larger ones, up to 200 times",
}
#: Errors that may occur for some inputs only; a wrong shape or dtype occurs for all.
_DEPENDS_ON_INPUTS = frozenset({"values", "non-finite", "precision"})
_ON_STRESS = re.compile(r" on stress inputs \(\w+\)$")

_FRAME = re.compile(r'^  File "[^"\n]*", line (?P<line>\d+)(?:, in [^\n]*)?\n    (?P<source>[^\n]*)$', re.MULTILINE)
_OWNERS = {
    pb.KernelUse.OWNER_CANDIDATE: "yours",
    pb.KernelUse.OWNER_TORCH: "PyTorch's",
    pb.KernelUse.OWNER_LIBRARY: "a library's",
    pb.KernelUse.OWNER_MEMORY: "copy or fill",
}
#: Most workloads that are listed, and most characters of one.
_MOST_WORKLOADS, _WORKLOAD = 6, 80
#: Outcomes after which no workload is named: none has failed, or the candidate is not at fault.
_NO_FAILURE_OF_A_CALL = (
    EvalResult.CORRECT,
    EvalResult.INVALID,
    EvalResult.REFERENCE_ERROR,
    EvalResult.INFRASTRUCTURE_ERROR,
    EvalResult.PROBLEM_TOO_LARGE,
)
#: Instruction to a model whose answer had no code.
_GIVE_CODE = "Give the whole program in one closed fenced code block."
#: What the model calls its own text, by the request's field. Errors in other fields are reported to the caller.
_WRITTEN = {
    "kernel_code": "your program",
    "kernel_files": "your files:",
    "build_flags": "your build flags:",
    "response_text": "your answer",
}
#: Replacements for findings whose evidence tells the caller which option to set, because a model cannot set options.
_FOR_A_MODEL = {
    "S23": "the errors look like those of a lower precision: compute and accumulate in a higher one, or look for a mistake"
}
_STAGES = {
    "build": "building your native code",
    "load": "importing your source",
    "compile": "the first call, where Triton compiles and tunes",
    "correctness": "the correctness trials",
    "timing": "the timed calls",
}


def feedback(
    result: EvalResult,
    *,
    limit: int,
    extraction: Extraction | None = None,
    remeasured: EvalResult | None = None,
    logs: bool = False,
    speedup_kind: pb.SpeedupKind.ValueType = pb.SPEEDUP_KIND_UNSPECIFIED,
) -> str:
    """Return the text for the next turn, at most `limit` characters.

    Args:
        result: the first evaluation of the turn.
        limit: most characters; 0 for no text.
        extraction: how the candidate was taken from the response.
        remeasured: the second evaluation of a speedup that looked too good. The smaller speedup is reported; if the
            second evaluation is not CORRECT, the text describes that one.
        logs: also quote what the candidate printed, at the end.
        speedup_kind: the speedup that the reward uses, if it is not the evaluation's.
    """
    verdict = remeasured if remeasured is not None and result.outcome == EvalResult.CORRECT else result
    if verdict is remeasured and verdict.outcome == EvalResult.CORRECT:
        first, second = (counted_speedup(one, speedup_kind).value for one in (result, remeasured))
        verdict = result if first < second else remeasured
    other = None if remeasured is None else (result if verdict is remeasured else remeasured)
    return quoting.fit(_sections(verdict, other, extraction, logs, speedup_kind), max(limit, 0))


def _sections(
    verdict: EvalResult,
    other: EvalResult | None,
    extraction: Extraction | None,
    logs: bool,
    kind: pb.SpeedupKind.ValueType,
) -> Iterator[str]:
    if extraction is not None and not extraction.method:
        note = quoting.line(extraction.note, _SENTENCE)
        yield f"INVALID: no code was found: {note}. {_GIVE_CODE}"
        return
    counted = counted_speedup(verdict, kind)
    yield from _outcome(verdict, counted)
    if extraction is not None and extraction.note:
        yield f"About your answer: {quoting.line(extraction.note, _SENTENCE)}."
    yield from _failed_workload(verdict)
    yield from _exception(verdict)
    yield from _mismatch(verdict)
    yield from closer_look.call(verdict)
    yield from _inputs(verdict)
    yield from closer_look.memory(verdict)
    if verdict.outcome == EvalResult.CORRECT:
        yield from _doubt(other, kind)
        yield from _workloads(verdict, counted.kind)
        yield from _roofline(verdict)
        yield from _kernels(verdict)
        yield from _hints(verdict, counted)
        yield from _spills(verdict)
        yield from closer_look.kernel(verdict)
    yield from _findings(verdict)
    yield from _traceback(verdict)
    if logs and verdict.logs.strip():
        yield "Your program printed:\n" + quoting.block(verdict.logs, lines=_QUOTED_LINES, width=_QUOTED_WIDTH)


def _outcome(verdict: EvalResult, counted: CountedSpeedup) -> Iterator[str]:
    """Yield the headline: the outcome of the candidate and the reason, in one line."""
    name = EvalResult.Outcome.Name(verdict.outcome) if verdict.outcome in EvalResult.Outcome.values() else "UNKNOWN"
    if verdict.outcome == EvalResult.CORRECT:
        yield f"CORRECT: {_time(verdict, counted)}"
    elif verdict.outcome == EvalResult.INCORRECT:
        yield f"INCORRECT: {quoting.line(_wrong(verdict.incorrect), _HEADLINE)}{_passed(verdict)}."
    elif error := _error(verdict):
        where = f" in {quoting.line(error.stage, 20)}" if error.stage else ""
        yield f"{name}{where}: {quoting.line(f'{error.type}: {_summary(error.message)}'.removesuffix(': '), _HEADLINE)}"
    elif verdict.outcome == EvalResult.RUNTIME_ERROR:
        yield f"RUNTIME_ERROR in {quoting.line(verdict.runtime_error.stage or 'a call', 20)}: {_end(verdict)}."
    elif verdict.outcome == EvalResult.TIMEOUT:
        stage = verdict.timeout.stage
        doing = _STAGES.get(stage, quoting.line(stage, 20) or "a stage")
        yield f"TIMEOUT: {doing} took longer than {verdict.timeout.limit_seconds:g} s."
    elif verdict.outcome == EvalResult.OUT_OF_MEMORY:
        evidence = verdict.out_of_memory
        which = f"{quoting.line(evidence.memory, 10)} memory ran out in {quoting.line(evidence.stage, 20)}"
        yield f"OUT_OF_MEMORY: {which}: {quoting.line(evidence.detail, _HEADLINE)}"
    elif verdict.outcome == EvalResult.REJECTED:
        causes = [finding for finding in verdict.findings if finding.severity == pb.Finding.SEVERITY_REJECT]
        told = "; ".join(f"{quoting.line(cause.id, 10)}, {quoting.line(cause.evidence, _SENTENCE)}" for cause in causes)
        yield f"REJECTED: {told or 'the candidate does not do the work itself'}."
    elif verdict.outcome == EvalResult.INVALID:
        yield _invalid(verdict)
    else:
        yield f"{name}: no verdict. This says nothing about your program."


def _invalid(verdict: EvalResult) -> str:
    wrong, empty = [], False
    for one in verdict.invalid.violations:
        if (written := _WRITTEN.get(top_field(one.field))) is None:
            wrong.append(f"{quoting.line(one.field, 40)}: {one.description}" if one.field else one.description)
        elif one.description.startswith(MISSING):
            wrong.append("your answer is empty")
            empty = True
        else:
            wrong.append(f"{written} {one.description}")
    told = quoting.line("; ".join(wrong) or verdict.message, _SENTENCE)
    return f"INVALID: {told}. {_GIVE_CODE}" if empty else f"INVALID: {told}"


def _time(verdict: EvalResult, counted: CountedSpeedup) -> str:
    """Return both speedups and their times in one line, the one that counts first."""
    if counted.unmeasured:
        return f"all outputs are right; not timed {counted.words}, which is the time that counts."
    if verdict.workload_summary.timed:
        return _over_workloads(verdict, counted)
    if counted.candidate is None:
        return "all outputs are right; not timed."
    own = _seconds(counted.candidate.median_seconds)
    if counted.reference is None or not counted.value > 0:
        return f"all outputs are right; {own} a call, with no reference to compare with."
    interval = clause = limited = ""
    if counted.interval is not None:
        low, high = counted.interval.low, counted.interval.high
        interval = f" (95% interval {factor(low)} to {factor(high)})"
        clause = ", no certain gain" if low <= 1 <= high else ""
    if not clause and counted.value < 1:
        clause = ", slower than the reference"
    reference = _seconds(counted.reference.median_seconds)
    other = other_speedup(verdict, counted)
    if other.candidate is None or not other.value > 0 or as_called(verdict):
        times = f"{own} a call, the reference {reference}"
    else:
        names = ("device time", "end to end") if counted.kind == DEVICE else ("end to end", "device time")
        times = (
            f"{names[0]} {own}, the reference {reference};"
            f" {names[1]} {_seconds(other.candidate.median_seconds)}, {factor(other.value)}x"
        )
    if (most := most_paid(verdict, counted)) < counted.value:
        queued = _seconds(verdict.reference_timing.queued_seconds)
        limited = f" Queued ahead of the device, the reference takes {queued}: at most {factor(most)}x is paid."
    interpreted = " Triton was interpreted: this is no GPU's time." if verdict.environment.triton_interpreter else ""
    return f"{factor(counted.value)}x the reference's speed{interval}{clause}; {times}.{limited}{interpreted}"


def _workloads(verdict: EvalResult, kind: pb.SpeedupKind.ValueType) -> Iterator[str]:
    """Yield the speedup and the time of each workload, the lowest speedup first, and then the longest time."""
    timed = [
        (counted_speedup(each, kind), each.workload) for each in verdict.workloads if each.HasField("candidate_timing")
    ]
    timed.sort(key=lambda pair: (pair[0].value, -_median(pair[0])))
    if not timed:
        return
    told = [f"{_workload_name(workload)} {_speedup_and_time(one)}" for one, workload in timed[:_MOST_WORKLOADS]]
    more = f"; {len(timed) - len(told)} more are faster" if len(timed) > len(told) else ""
    yield f"By workload, slowest first: {'; '.join(told)}{more}."


def _speedup_and_time(one: CountedSpeedup) -> str:
    """Return "2.00x (5 us a call)", as far as both are known."""
    time = f"{_seconds(_median(one))} a call" if one.candidate is not None else ""
    if not one.value > 0:
        return time or "not timed"
    return f"{factor(one.value)}x" + (f" ({time})" if time else "")


def _median(one: CountedSpeedup) -> float:
    """Return the candidate's time in seconds; 0 if there is none."""
    return 0.0 if one.candidate is None else one.candidate.median_seconds


def _workload_name(workload: pb.Workload) -> str:
    return quoting.line(workload.name or workload.value_json, _WORKLOAD)


def _failed_workload(verdict: EvalResult) -> Iterator[str]:
    """Yield the name of the workload that ended the evaluation, if it was the candidate's failure."""
    if verdict.outcome not in _NO_FAILURE_OF_A_CALL and verdict.workloads:
        last = verdict.workloads[-1]
        if last.outcome == verdict.outcome and (name := _workload_name(last.workload)):
            yield f"This was workload {name}."


def _wrong(wrong: pb.IncorrectEvidence) -> str:
    """Return what is wrong; stress inputs are mentioned only if they can be the reason."""
    detail = wrong.detail or "an output is wrong"
    return detail if wrong.kind in _DEPENDS_ON_INPUTS else _ON_STRESS.sub("", detail)


def _over_workloads(verdict: EvalResult, counted: CountedSpeedup) -> str:
    """Return the mean over workloads, and how many of them are faster than the reference, in one line."""
    timed = [value for each in verdict.workloads if (value := counted_speedup(each, counted.kind).value) > 0]
    summary = verdict.workload_summary
    if not timed and not summary.worst_speedup:
        counts = f"{summary.timed} of {summary.total} workloads timed"
        return f"all outputs are right; {counts}, with no reference to compare with."
    mean = f"{factor(counted.value)}x the reference's speed {counted.words}, geometric mean of {len(timed)} workloads"
    won, worst = sum(value > 1 for value in timed), factor(min(timed, default=0.0))
    return f"{mean}; {won} of {len(timed)} are faster than the reference, the slowest has {worst}x."


def _passed(verdict: EvalResult) -> str:
    report = verdict.correctness
    return f" ({report.passed_trials} of {report.total_trials} trials were right)" if report.passed_trials > 0 else ""


def _error(verdict: EvalResult) -> pb.ExceptionEvidence | None:
    """Return the candidate's exception, if there was one."""
    if verdict.HasField("compile_error"):
        return verdict.compile_error
    if verdict.HasField("runtime_error") and verdict.runtime_error.HasField("exception"):
        return verdict.runtime_error.exception
    return None


def _summary(message: str) -> str:
    """Return the first line of an exception's message, and a later line if only that one says what is wrong."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    if lines[0].endswith(":"):  # Triton writes "at 6:44:", then source, then the reason
        return f"{lines[0]} {quoting.ELLIPSIS} {lines[-1]}"
    told = next((line for line in lines[1:] if "error:" in line), "")  # nvcc and ptxas write it after the command line
    return f"{lines[0][:60]} {quoting.ELLIPSIS} {told}" if told else lines[0]


def _pointed_at(message: str) -> str:
    """Return the source line above a caret, as Triton's compiler quotes it, or ""."""
    lines = message.splitlines()
    return next((above for above, line in itertools.pairwise(lines) if line.strip() == "^"), "")


def _end(verdict: EvalResult) -> str:
    crash = verdict.runtime_error
    if crash.signal:
        try:
            name = f" ({signal.Signals(crash.signal).name})"
        except ValueError:
            name = ""
        return f"your program was ended by signal {crash.signal}{name}"
    return (
        f"your program exited with status {crash.exit_code}" if crash.HasField("exit_code") else "your program crashed"
    )


def _exception(verdict: EvalResult) -> Iterator[str]:
    """Yield lines of the candidate's source: the one in a kernel, if Triton tells it, and the innermost in a traceback."""
    error = _error(verdict)
    if error is None:
        return
    raised = [list(_FRAME.finditer(part)) for part in error.traceback.split("\ncaused by:\n")]
    if pointed := _pointed_at(error.message):
        yield f"In the kernel: {quoting.line(pointed, _SOURCE_LINE)}"
    elif error.type == _INTERPRETER_ERROR and len(raised) > 1 and raised[-1]:
        # The exception itself is raised where the kernel is launched, which does not show the mistake.
        yield f"In the kernel, {_line_of(raised[-1][-1])}"
    if frames := next((frames for frames in raised if frames), None):
        yield f"Your {_line_of(frames[-1])}"


def _line_of(frame: re.Match[str]) -> str:
    return f"line {frame['line']}: {quoting.line(frame['source'], _SOURCE_LINE)}"


def _traceback(verdict: EvalResult) -> Iterator[str]:
    """Yield the whole exception, for large budgets."""
    error = _error(verdict)
    text = "" if error is None else error.traceback or error.message
    if text.strip():
        yield "In full:\n" + quoting.block(text, lines=_QUOTED_LINES, width=_QUOTED_WIDTH)


def _mismatch(verdict: EvalResult) -> Iterator[str]:
    """Yield where the largest error is, and how large. A scalar has no position, but its error has a size."""
    wrong = verdict.incorrect
    infinite = wrong.max_error_ratio >= _LARGEST
    if not wrong.worst_index and not infinite and not wrong.max_abs_error > 0:
        return
    place = quoting.line(wrong.output, _NAME)
    if wrong.worst_index:
        place += f" at [{', '.join(str(index) for index in wrong.worst_index[:8])}]"
    size = ""
    if infinite:
        size = " is not a finite number"
    elif wrong.max_error_ratio > 0:
        size = f" is off by {_number(wrong.max_abs_error)}, {_number(wrong.max_error_ratio)} times what is allowed"
    seen = closer_look.OTHER_CALLS.get(wrong.trial)
    when = f"; first seen in {seen}" if seen else ""
    yield f"Worst element: {place}{size}{when}."


def _inputs(verdict: EvalResult) -> Iterator[str]:
    """Yield which inputs show the error, and whether usual inputs do; hearing "stress" alone misleads the model."""
    wrong, report = verdict.incorrect, verdict.correctness
    if wrong.kind not in _DEPENDS_ON_INPUTS or wrong.stress not in _STRESS_WORDS or not report.total_trials:
        return
    usual = report.total_trials - report.stress_trials
    if usual > 0:
        trials = "the trial" if usual == 1 else f"all {usual} trials"
        yield f"These inputs had {_STRESS_WORDS[wrong.stress]}; {trials} on usual inputs came out right."
    else:
        yield "Usual inputs were not tried before, and may come out wrong too."


def _doubt(other: EvalResult | None, kind: pb.SpeedupKind.ValueType) -> Iterator[str]:
    if other is not None and other.outcome == EvalResult.CORRECT:
        speedup = factor(counted_speedup(other, kind).value)
        yield f"Measured twice, since {speedup}x looked too good; the smaller speedup counts."


def _roofline(verdict: EvalResult) -> Iterator[str]:
    """Yield how close it comes to the device's limits; nothing if Triton was interpreted, as that says little."""
    if not verdict.environment.triton_interpreter and (words := roofline.words(verdict.roofline)):
        yield f"Roofline: {words}."


def _kernels(verdict: EvalResult) -> Iterator[str]:
    profile = verdict.profile
    total = sum(kernel.device_seconds for kernel in profile.kernels)
    if not 0 < total < math.inf:
        return
    calls = max(profile.calls, 1)
    top = sorted(profile.kernels, key=lambda kernel: -kernel.device_seconds)[:_TOP_KERNELS]
    rows = [
        f"{kernel.device_seconds / total:.0%} {quoting.line(kernel.name, _NAME)}"
        f" ({_OWNERS.get(kernel.owner, 'unknown')}, {_count(kernel.launches / calls)})"
        for kernel in top
    ]
    yield f"Kernels by device time ({_share(profile.device_time_coverage)} of it yours): {'; '.join(rows)}."


def _hints(verdict: EvalResult, counted: CountedSpeedup) -> Iterator[str]:
    """Yield what limits the candidate, as far as the profile shows."""
    profile = verdict.profile
    call = counted.candidate.median_seconds if counted.candidate is not None else 0.0
    total = sum(kernel.device_seconds for kernel in profile.kernels)
    if not 0 < total < math.inf:
        return
    calls = max(profile.calls, 1)
    device = total / calls
    launches = sum(kernel.launches for kernel in profile.kernels) / calls
    hints = []
    if 0 < device < 0.5 * call:
        queued = counted.candidate is not None and counted.candidate.regime == pb.TimingStats.REGIME_QUEUED_AHEAD
        rest = "gaps between them" if queued and counted.kind == DEVICE else "launches and Python"
        hints.append(f"kernels run for {_seconds(device)} of a call's {_seconds(call)}: {rest} are the rest")
    if launches >= _MANY_LAUNCHES and device / launches < _SHORT_KERNEL:
        hints.append(f"{_count(launches)} a call of {_seconds(device / launches)} each: fuse them")
    copies = sum(kernel.device_seconds for kernel in profile.kernels if kernel.owner == pb.KernelUse.OWNER_MEMORY)
    if copies > 0.2 * total:
        hints.append(f"{_share(copies / total)} of the device time copies or fills memory")
    foreign = (pb.KernelUse.OWNER_TORCH, pb.KernelUse.OWNER_LIBRARY)
    others = sum(kernel.device_seconds for kernel in profile.kernels if kernel.owner in foreign)
    if others > 0.5 * total:
        hints.append(f"{_share(others / total)} of the device time is in kernels that you did not write")
    if hints:
        yield f"Limits: {'; '.join(hints)}."


def _spills(verdict: EvalResult) -> Iterator[str]:
    """Yield which kernels keep registers, or arrays that they index with variables, in slow memory."""
    spilling = sorted((code for code in verdict.kernel_code if code.spill_bytes), key=lambda code: -code.spill_bytes)
    told = [
        f"kernel {quoting.line(code.name, _NAME)}: {code.registers} registers, {code.spill_bytes} bytes"
        for code in spilling[:_MOST_SPILLING]
    ]
    if told:
        yield f"Spilled registers or local arrays of each thread lie in slow memory: {'; '.join(told)}."


def _findings(verdict: EvalResult) -> Iterator[str]:
    """Yield labels and warnings about the candidate. Findings about the problem would only teach to exploit it."""
    shown = [
        finding
        for finding in verdict.findings
        if finding.severity != pb.Finding.SEVERITY_REJECT
        and not finding.id.startswith("D")
        and finding.id not in counters.MEMORY_FINDINGS  # already told, with what to check
    ]
    for finding in shown[:_MOST_FINDINGS]:
        told = _FOR_A_MODEL.get(finding.id, finding.evidence)
        yield f"Note {quoting.line(finding.id, 10)}: {quoting.line(told, _SENTENCE)}."


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def _number(value: float) -> str:
    return f"{value:.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def _share(value: float) -> str:
    return f"{value:.0%}" if 0 <= value <= 1 else "?"


def _count(launches: float) -> str:
    return f"{launches:g} launch" if launches == 1 else f"{launches:.3g} launches"
