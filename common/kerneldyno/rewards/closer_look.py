"""Write the parts of feedback about a closer look: errors of memory, calls that are no trials, hardware counters.

Kernel names, files and the tools' texts come from the candidate's process: everything is quoted on one line, cut, and made
harmless (`quoting`). Addresses are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kerneldyno.rewards import counters, quoting
from kerneldyno.v1.evaluation_pb2 import EvalResult, KernelCounters, KernelUse, MemoryError

#: Calls that are no trials, by the number that stands for them in `IncorrectEvidence.trial`.
OTHER_CALLS = {
    -1: "a timed call",
    -2: "the first call after construction",
    -3: "a call that repeats an earlier one",
    -4: "a call under compute-sanitizer",
}
#: Most characters about counters, and of a piece of advice, a name and a word.
_MOST, _ADVICE, _NAME, _WORD = 1200, 240, 60, 40
_MOST_ADVICE, _MOST_STALLS, _MOST_ERRORS = 3, 2, 3
#: Smaller shares of a warp's time, and smaller promised gains, are left out.
_WORTH_TELLING = 0.05
#: Share of the roof from which a kernel can only gain by less work, and largest gain that is told.
_NEAR_THE_ROOF, _MOST_GAIN = 0.8, 9.99

#: Sentences of advice that say what to do, and where a sentence ends.
_TO_DO = re.compile(r"^(Try|To reduce|To improve|Consider|Use|If)\b|\b(recommended|try to|consider|limited by)\b")
_BETWEEN, _TEXT = re.compile(r"(?<=[.!?]) (?=[A-Z])"), 600

#: What is wrong, and what to check, by finding.
_MEANING = {
    "M01": ("a write outside of the tensors", "the mask of every store, the offsets, and the size of the grid"),
    "M02": ("a read outside of the tensors", "the mask of every load, the offsets, and the size of the grid"),
    "M03": ("a race in shared memory", "that a barrier separates every write from the reads of other threads"),
    "M04": (
        "a read of memory that nobody has written",
        "that all of a buffer is written before it is read: zeros in place of empty, and no masked part is read",
    ),
    "M05": (
        "a barrier that not all threads reach",
        "that no barrier is in a branch or loop that threads leave at different times",
    ),
}
_OF_TOOL = {"racecheck": "M03", "initcheck": "M04", "synccheck": "M05"}
_BEYOND = re.compile(r"is (\d{1,15}) bytes (before|after) the nearest allocation .{0,40}of size (\d{1,15}) bytes")
#: What to look for if only a call of this kind was wrong.
_OF_CALL = {
    -2: "The first call after construction was wrong: check what that call alone does, such as making buffers, packing"
    " weights, or tuning runs that write to the output.",
    -3: "A call with the inputs of an earlier call was wrong: check what calls leave behind, such as buffers, counters and"
    " semaphores that are not reset, and results that depend on the order of threads.",
}
#: What to do about resources that limit how many warps can be active.
_LESS = {
    "registers": "fewer registers a thread by smaller tiles or more warps for a tile",
    "shared memory": "less shared memory a block by smaller tiles or fewer stages",
    "blocks": "more threads a block",
    "warps": "smaller blocks",
    "barriers": "fewer barriers",
}


def memory(verdict: EvalResult) -> Iterator[str]:
    """Yield each kind of error of memory: what, in which kernel, at which file and line, and what to check."""
    errors: dict[str, MemoryError] = {}
    for run in verdict.sanitizer.runs:
        for error in run.reports:
            errors.setdefault(_finding(run.tool, error), error)
    ids = list(dict.fromkeys([*errors, *counters.memory_findings(verdict)]))
    for name in ids[:_MOST_ERRORS]:
        what, check = _MEANING[name]
        where = _where(errors[name]) if name in errors else ""
        yield f"Memory error {name}, {what}{where}. Check {check}."


def call(verdict: EvalResult) -> Iterator[str]:
    """Yield what to look for if the wrong call was no trial."""
    if verdict.incorrect.kind in ("values", "non-finite") and (told := _OF_CALL.get(verdict.incorrect.trial)):
        yield told


def kernel(verdict: EvalResult) -> Iterator[str]:
    """Yield what limits the slowest own kernel, in words and numbers, and the most promising advice."""
    slowest = counters.slowest(verdict.counters)
    if slowest is not None and (text := quoting.fit(_kernel(slowest), _MOST)):
        yield from text.split("\n")


def _finding(tool: str, error: MemoryError) -> str:
    return _OF_TOOL.get(tool) or ("M02" if "read" in error.what else "M01")


def _where(error: MemoryError) -> str:
    """Return " in NAME at FILE:LINE, 513 bytes after an allocation of 262144 bytes", as far as it is known."""
    name, file = quoting.line(error.kernel, _NAME), quoting.line(error.file, _WORD)
    told = (f" in {name}" if name else "") + (f" at {file}:{error.line}" if file else "")
    if beyond := _BEYOND.search(error.detail):
        told += f", {beyond[1]} bytes {beyond[2]} an allocation of {beyond[3]} bytes"
    return told


def _kernel(slowest: KernelCounters) -> Iterator[str]:
    whose = "Your slowest kernel" if slowest.owner == KernelUse.OWNER_CANDIDATE else "The slowest kernel, not yours,"
    name = quoting.line(slowest.name, _NAME) or "(no name)"
    if limits := "; ".join(_limits(slowest)):
        yield f"{whose} {name} by hardware counters: {limits}."
    useful = (one for one in slowest.advice if counters.positive(one.promise) >= _WORTH_TELLING)
    for advice in sorted(useful, key=lambda one: -one.promise)[:_MOST_ADVICE]:
        gain = f"{min(advice.promise, _MOST_GAIN):.0%}"
        yield f"Advice (gain up to {gain}): {quoting.line(_useful(advice.text), _ADVICE)}"


def _useful(text: str) -> str:
    """Return the sentences that say what to do; the first sentence if none does. The tool explains its terms at length."""
    sentences = _BETWEEN.split(" ".join(text[:_TEXT].split()))
    return " ".join(one for one in sentences if _TO_DO.search(one) and "http" not in one) or sentences[0]


def _limits(slowest: KernelCounters) -> Iterator[str]:
    """Yield what limits a kernel, the most important first."""
    if place := counters.roof_words(slowest):
        yield place
    if counters.is_waiting(slowest):
        yield "far from both limits, so it mostly waits"
    elif counters.bound(slowest) == counters.MEMORY and _NEAR_THE_ROOF <= slowest.roof_share <= 1:
        yield "only fewer bytes can make it faster (fusion, smaller types, no second pass)"
    if slowest.spill_instructions > 0:
        yield f"{slowest.spill_instructions} instructions spill registers to memory: use smaller tiles or more warps"
    if slowest.bank_conflicts > 0 and _WORTH_TELLING <= slowest.bank_conflict_share <= 1:
        share = counters.percent(slowest.bank_conflict_share)
        yield f"bank conflicts are {share} of the passes over shared memory: pad or swizzle it"
    if occupancy := counters.occupancy_words(slowest):
        limiters = [quoting.line(word, _WORD) for word in slowest.occupancy_limiter[:_NAME].split(",") if word.strip()]
        cures = ", ".join(_LESS[word] for word in limiters if word in _LESS)
        cure = f": try {cures}" if cures else ""
        yield f"occupancy {occupancy}" + (f", limited by {' and '.join(limiters)}{cure}" if limiters else "")
    stalls = [stall for stall in slowest.stalls if _WORTH_TELLING <= stall.share <= 1][:_MOST_STALLS]
    if stalls:
        told = ", ".join(
            f"{counters.percent(stall.share)} {quoting.line(stall.meaning or stall.reason, _NAME)}" for stall in stalls
        )
        yield f"of a warp's time {told}"
