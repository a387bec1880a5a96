"""Results of inspections for tests and benchmarks that have no GPU: made by the evaluator from `tool_reports`.

The reports are what the tools wrote on an H200 about planted kernels. Only names of kernels, files and lines are replaced,
by those of a candidate.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kerneldyno.evaluator.judge.inspection import counters as judge_counters
from kerneldyno.evaluator.judge.inspection import sanitizer as judge_sanitizer
from kerneldyno.evaluator.judge.inspection.watched import Seen
from kerneldyno.evaluator.judge.results.record import Record
from kerneldyno.evaluator.runner import counters as runner_counters
from kerneldyno.evaluator.runner import sanitizer as runner_sanitizer
from kerneldyno.v1 import evaluation_pb2 as pb

REPORTS = Path(__file__).parent / "tool_reports"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: Kernels in the report of Nsight Compute: an addition limited by memory, a softmax limited by registers, and a product of
#: matrices by tensor cores, limited by registers and shared memory.
KERNELS = ("add", "softmax", "mm")


def counters(*names: str) -> pb.CounterProfile:
    """Return the counters of these kernels, or of all."""
    raw, details = ((REPORTS / f"ncu_{page}.csv").read_text() for page in ("raw", "details"))
    rows = runner_counters.read_rows(raw, details)
    chosen = [row for row in rows if row["name"] in (names or KERNELS)]
    seen = Seen({"kernels": chosen, "version": "Nsight Compute 2025.3.1.0"}, KERNELS, seconds=9.3)
    return judge_counters.profile_of(seen)


def sanitizer(tool: str, kernel: str = "scaled_relu", file: str = "candidate.py", line: int = 27) -> pb.SanitizerReport:
    """Return a report in which one tool has seen the planted error, as if it were in this kernel and line."""
    spec: Any = SimpleNamespace(kernel_files=())
    log = (REPORTS / f"{tool}.txt").read_text()
    log = re.sub(r"\bat \w+(\([^)]*\))?\+(0x\w+) in \S+:\d+", rf"at {kernel}+\2 in {file}:{line}", log)
    errors = runner_sanitizer.read_errors(log)
    clean = Seen({"errors": [], "finished": True}, [kernel], seconds=4.0)
    found = Seen({"errors": errors, "finished": True}, [kernel], seconds=4.0)
    return pb.SanitizerReport(
        runs=[judge_sanitizer.run_of(name, found if name == tool else clean, spec) for name in TOOLS]
    )


def refused(report: pb.SanitizerReport, policy: pb.MemoryErrors.ValueType = pb.MEMORY_ERRORS_REJECT) -> pb.EvalResult:
    """Return the judge's result for a right candidate with this report."""
    spec: Any = SimpleNamespace(checks=SimpleNamespace(memory_errors=policy))
    right = pb.EvalResult(outcome=pb.EvalResult.CORRECT, compiled=True, correct=True, message="all outputs are right")
    return judge_sanitizer.apply(report, right, Record(), spec)
