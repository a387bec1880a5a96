"""What tools saw inside a candidate, for a person in a terminal: each kernel's limits and advice, and errors of memory.

Names and texts come from the candidate's process, so they are shown as plain text (`cards.plain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from kerneldyno.cli.cards import fact_table, plain, verdict_line
from kerneldyno.report import inspected
from kerneldyno.report.inspected import one_line
from kerneldyno.report.units import size
from kerneldyno.report.wording import findings, speedups
from kerneldyno.rewards import counters
from kerneldyno.v1.evaluation_pb2 import EvalResult, KernelCode, KernelCounters, KernelUse, MemoryError, SanitizerRun

#: Longest names, texts and words in characters; advice that promises nothing is shorter.
_NAME, _TEXT, _WORD, _UNPROMISED = 200, 600, 60, 160
#: A larger promised gain says nothing more.
_MOST_GAIN = 9.99
#: From here on, a report of compute-sanitizer is about the host.
_BACKTRACE = "; Saved host backtrace"
_NOT_CORRECT = "only a CORRECT candidate has counters"
_NOT_SENT = "the result has none: the evaluator may be older than counters"
#: Owners other than the candidate, in words.
_OWNERS = {
    KernelUse.OWNER_TORCH: "PyTorch's",
    KernelUse.OWNER_LIBRARY: "a library's",
    KernelUse.OWNER_MEMORY: "copy or fill",
}


def kernel_view(result: EvalResult, *, verdict: bool = True) -> RenderableType:
    """Return the verdict (unless the caller has shown it), each kernel, what compute-sanitizer said, and listings."""
    parts: list[RenderableType] = []
    if verdict:
        parts.append(verdict_line(result))
        if result.message:
            parts.append(plain(result.message))
        parts.append(fact_table([*speedups(result), *_whole(result), *findings(result)]))
    parts += _counters(result)
    if result.HasField("sanitizer"):
        parts += _block("compute-sanitizer", _sanitizer(result.sanitizer.runs))
    parts += _listings(result.kernel_code)
    return Group(*parts)


def _whole(result: EvalResult) -> Iterator[tuple[str, str]]:
    """Yield facts about the candidate as a whole."""
    if words := inspected.energy_words(result):
        yield "energy", words
    if result.correctness.HasField("deterministic"):
        yield "deterministic", "yes" if result.correctness.deterministic else "no"
    if result.counters.kernels and result.counters.tool:
        took = f", {result.counters.seconds:.1f} s" if counters.positive(result.counters.seconds) else ""
        yield "counters by", f"{one_line(result.counters.tool, _WORD)}{took}"


def _counters(result: EvalResult) -> list[RenderableType]:
    kernels = counters.own_kernels(result.counters)
    if not kernels:
        missing = _NOT_SENT if result.outcome == EvalResult.CORRECT else _NOT_CORRECT
        return [plain(f"\nNo counters: {one_line(result.counters.unavailable, _TEXT) or missing}.")]
    parts: list[RenderableType] = []
    for number, kernel in enumerate(kernels, 1):
        owner = f", {_OWNERS[kernel.owner]}" if kernel.owner in _OWNERS else ""
        name = one_line(kernel.name, _NAME) or "(no name)"
        parts += _block(f"{name} (launch {number} of {len(kernels)}{owner})", _kernel(kernel))
    return parts


def _block(heading: str, rows: Iterable[tuple[str, str]]) -> list[RenderableType]:
    title = plain(f"\n{heading}")
    title.stylize("bold")
    return [title, Padding(fact_table(rows), (0, 0, 0, 2), expand=False)]


def _kernel(kernel: KernelCounters) -> Iterator[tuple[str, str]]:
    """Yield everything that is known of a launch."""
    percent = counters.percent
    yield "duration", inspected.duration(kernel) or "not known"
    yield "launch", f"{_sizes(kernel.grid)} blocks of {_sizes(kernel.block)} threads"
    shares = {
        "DRAM": kernel.dram_throughput,
        "L2": kernel.l2_throughput,
        "L1": kernel.l1_throughput,
        "SM": kernel.sm_throughput,
        "tensor cores": kernel.tensor_throughput,
    }
    yield "of peak", ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    if place := counters.roof_words(kernel):
        waits = "; neither memory nor arithmetic is near its limit" if counters.is_waiting(kernel) else ""
        yield "roofline", f"{place}{waits}"
    if occupancy := counters.occupancy_words(kernel):
        limiter = one_line(kernel.occupancy_limiter, _WORD)
        yield "occupancy", occupancy + (f", limited by {limiter}" if limiter else "")
    spills = f"{kernel.spill_instructions} spill instructions" if kernel.spill_instructions > 0 else "no spills"
    yield (
        "resources",
        f"{kernel.registers} registers a thread, {spills}, {size(kernel.shared_memory_bytes)} of shared memory a block",
    )
    if kernel.bank_conflicts > 0:
        share = percent(kernel.bank_conflict_share)
        yield "bank conflicts", f"{kernel.bank_conflicts} more passes over shared memory, {share} of all"
    if ipc := counters.positive(kernel.instructions_per_cycle):
        yield "instructions", f"{ipc:.2f} a cycle and multiprocessor"
    for name, stall in zip(_labels("warps wait", len(kernel.stalls)), kernel.stalls, strict=True):
        meaning = one_line(stall.meaning, _NAME)
        yield name, f"{percent(stall.share)} {one_line(stall.reason, _WORD)}" + (f": {meaning}" if meaning else "")
    for name, advice in zip(_labels("advice", len(kernel.advice)), kernel.advice, strict=True):
        promise = counters.positive(advice.promise)
        gain = f"gain up to {min(promise, _MOST_GAIN):.0%}, " if promise else ""
        text = one_line(advice.text, _TEXT if promise else _UNPROMISED)
        yield name, f"{gain}{one_line(advice.rule, _WORD)}: {text}"


def _labels(first: str, count: int) -> list[str]:
    return [first, *[""] * (count - 1)][:count]


def _sizes(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes)) or "?"


def _sanitizer(runs: Iterable[SanitizerRun]) -> Iterator[tuple[str, str]]:
    for run in runs:
        why = f": {one_line(run.detail, _TEXT)}" if run.detail else ""
        yield one_line(run.tool, _WORD), counters.run_words(run) + why
        for error in run.reports:
            yield "", _error(error)


def _error(error: MemoryError) -> str:
    times = f", {error.count} times" if error.count > 1 else ""
    where = f" at {one_line(error.file, _NAME)}:{error.line}" if error.file else ""
    said = one_line(error.detail.partition(_BACKTRACE)[0], _TEXT)
    detail = f" ({said})" if said else ""
    kernel = one_line(error.kernel, _NAME) or "a kernel"
    return f"{one_line(error.what, _TEXT)} in {kernel}{where}{times}{detail}"


def _listings(codes: Iterable[KernelCode]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for code in codes:
        for form, text in (("PTX", code.ptx), ("SASS", code.sass)):
            if text:
                cut = ", cut" if code.truncated else ""
                heading = plain(f"\n{form} of {one_line(code.name, _NAME) or '(no name)'}{cut}")
                heading.stylize("bold")
                parts += [heading, Text(plain(text).plain, no_wrap=True, overflow="ignore")]
    return parts
