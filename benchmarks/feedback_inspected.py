"""Broken programs for benchmarks/feedback.py whose outputs are right: errors of memory, and kernels with one clear limit.

Only tools on a GPU see these mistakes. So a program is judged as any other (CUDA is not: the CPU device cannot run it), and
if its outputs are right and the mistake is still there, `as_inspected` adds what the tools said on an H200 about a kernel
with such a mistake (tests/evaluator/tool_reports), with the names and lines of this program. That is no measurement of
these programs. The rows show whether the text has what a repair needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.feedback_cases import Case, changed, right_program
from kerneldyno.client import EvalResult
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import recorded_inspections as recorded

#: Families: the program breaks a rule of memory, or is wrong in its first call; and a kernel has one clear limit.
MEMORY, LIMITS = "memory", "limits"
#: What stands for a report in cases whose mistake no tool reports.
FIRST_CALL = "first-call"
#: Spilling instructions that are added to a recorded row, which has none.
_SPILLED = 40_960


@dataclass(frozen=True, slots=True)
class InspectedCase(Case):
    """A program whose mistake only tools see."""

    mistake: tuple[str, ...] = ()
    """Texts that are all in the program as long as the mistake is there; none: until it is the right program."""
    report: str = ""
    """A tool of compute-sanitizer or a kernel in the report of Nsight Compute, each with a change or none; or FIRST_CALL."""
    kernel: str = ""
    """The kernel that the report names."""
    at: str = ""
    """A text in the line that the report names."""


def as_inspected(case: Case, source: str, result: EvalResult) -> EvalResult:
    """Return the result with what the tools would say about a program with right outputs."""
    if not isinstance(case, InspectedCase) or result.outcome != EvalResult.CORRECT or not _is_there(case, source):
        return result
    report, _, change = case.report.partition(" ")
    if report in recorded.TOOLS:
        line = next((number for number, text in enumerate(source.splitlines(), 1) if case.at in text), 1)
        said = recorded.sanitizer(report, case.kernel, line=line)
        if change == "read":  # the recorded error is a write
            error = said.runs[0].reports[0]
            error.what = error.what.replace("write", "read")
        found = recorded.refused(said)
    elif case.report == FIRST_CALL:
        detail = "1 of 1 elements of output are out of tolerance"
        wrong = pb.IncorrectEvidence(output="output", kind="values", detail=detail, trial=-2)
        wrong.mismatched_elements = wrong.total_elements = 1
        wrong.max_abs_error, wrong.max_error_ratio = 0.17, 2.1e5
        found = EvalResult(outcome=EvalResult.INCORRECT, compiled=True, correct=False, incorrect=wrong)
        found.message = f"{detail} (the first call)"
    else:
        found = EvalResult()
        found.CopyFrom(result)
        found.counters.CopyFrom(recorded.counters(report))
        found.counters.kernels[0].name = case.kernel
        if change == "spills":
            found.counters.kernels[0].spill_instructions = _SPILLED
        return found
    found.correctness.CopyFrom(result.correctness)
    return found


def right_outputs() -> EvalResult:
    """Return what stands for the verdict on a program that cannot run here."""
    return EvalResult(outcome=EvalResult.CORRECT, compiled=True, correct=True, message="not run")


def is_repaired(case: Case, source: str, result: EvalResult) -> bool:
    """Return True if the program is right and the mistake is gone."""
    there = isinstance(case, InspectedCase) and _is_there(case, source)
    return result.outcome == EvalResult.CORRECT and not there


def _is_there(case: InspectedCase, source: str) -> bool:
    if not case.mistake:
        return source.strip() != case.right.strip()
    return all(text in source for text in case.mistake)


def inspected_cases() -> list[Case]:
    """Return all of these cases, in a stable order."""
    found: list[Case] = []
    for name, (family, base, mistake, report, kernel, at, *changes) in _CHANGES.items():
        right = _PROGRAMS.get(base) or right_program(base)
        source = changed(right, changes, name)
        backend = "cuda" if "cuda" in base else "triton"
        places = {"mistake": tuple(filter(None, mistake.split("|"))), "report": report, "kernel": kernel, "at": at}
        found.append(InspectedCase(name, family, base.split("/")[0], source, backend, right, **places))  # type: ignore[arg-type]
    return found


#: A program that tries two sizes of blocks in its first call.
_TUNED = """\
import time

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mse_kernel(a_ptr, b_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    error = tl.load(a_ptr + offsets, mask=mask, other=0.0) - tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(error * error, axis=0) / count)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = 0

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        predictions, targets = predictions.contiguous(), targets.contiguous()
        count = predictions.numel()
        out = torch.zeros((), device=predictions.device)
        if not self.block:
            self.block = self.fastest(predictions, targets, torch.zeros_like(out), count)
        mse_kernel[(triton.cdiv(count, self.block),)](predictions, targets, out, count, BLOCK=self.block, num_warps=8)
        return out

    def fastest(self, predictions: torch.Tensor, targets: torch.Tensor, into: torch.Tensor, count: int) -> int:
        times = {}
        for block in (4096, 8192):
            begin = time.perf_counter()
            mse_kernel[(triton.cdiv(count, block),)](predictions, targets, into, count, BLOCK=block, num_warps=8)
            times[block] = time.perf_counter() - begin
        return min(times, key=times.get)
"""
_PROGRAMS = {"mse_loss/triton_tuned": _TUNED}
_PARTIAL = "sums = tl.load(partial_ptr + part, mask=part < parts, other=0.0)"
_UNMASKED = "sums = tl.where(part < parts, tl.load(partial_ptr + part), 0.0)"
_BARRIER = "    __syncthreads();\n"

#: By name: the family, the right program, the mistake, the report, the kernel and the line that it names, and then for each
#: change the old and the new text.
_CHANGES: dict[str, tuple[str, ...]] = {
    "one element past the end": (
        *(MEMORY, "relu/triton_blocks", "offsets <= count", "memcheck", "relu_kernel", "tl.store"),
        *("offsets < count", "offsets <= count", "triton.cdiv(count, 16384)", "triton.cdiv(count + 1, 16384)"),
    ),
    "one row past the end": (
        *(MEMORY, "row_mean/triton_rows", "row <= rows", "memcheck", "mean_kernel", "tl.store"),
        *("mask=row < rows)", "mask=row <= rows)", "triton.cdiv(rows, 8)", "triton.cdiv(rows + 1, 8)"),
    ),
    "one program more than parts": (
        *(MEMORY, "mse_loss/triton_partials", "(parts + 1,)", "memcheck", "partial_kernel", "tl.store(partial_ptr"),
        *("partial_kernel[(parts,)]", "partial_kernel[(parts + 1,)]"),
    ),
    "parts are read past their end": (
        *(MEMORY, "mse_loss/triton_partials", _UNMASKED, "memcheck read", "finish_kernel", "tl.load(partial_ptr"),
        *(_PARTIAL, _UNMASKED, "triton.next_power_of_2(parts)", "triton.next_power_of_2(parts + 1)"),
    ),
    "parts that nobody has written": (
        *(MEMORY, "mse_loss/triton_partials", f"{_UNMASKED}|torch.empty(2 * parts", "initcheck", "finish_kernel"),
        *("tl.load(partial_ptr", _PARTIAL, _UNMASKED, "triton.next_power_of_2(parts)"),
        *("triton.next_power_of_2(parts + 1)", "torch.empty(parts,", "torch.empty(2 * parts,"),
    ),
    "barrier left out": (
        *(MEMORY, "row_mean/cuda_inline", "", "racecheck", "mean_kernel", "partial[threadIdx.x / 32] ="),
        *(_BARRIER, ""),
    ),
    "barrier for some threads": (
        *(MEMORY, "row_mean/cuda_inline", "", "synccheck", "mean_kernel", "__syncthreads();"),
        *(_BARRIER, "    if (threadIdx.x < 32) __syncthreads();\n"),
    ),
    "tuning adds to the output": (
        *(MEMORY, "mse_loss/triton_tuned", "targets, out, count)\n", FIRST_CALL, "", ""),
        *("targets, torch.zeros_like(out), count)\n", "targets, out, count)\n"),
    ),
    "too many rows for the registers": (
        *(LIMITS, "softmax/triton_rows", "ROWS=64", "softmax", "softmax_kernel", ""),
        *("16),)](x, out, rows, columns, ROWS=16", "64),)](x, out, rows, columns, ROWS=64"),
    ),
    "too many stages for shared memory": (
        *(LIMITS, "matmul/triton_tiles", "num_stages=6", "mm", "matmul_kernel", ""),
        *("BK=32, num_warps=8", "BK=32, num_stages=6, num_warps=8"),
    ),
    "a pass that changes nothing": (
        *(LIMITS, "relu/triton_blocks", "(out, out, count", "add", "relu_kernel", ""),
        "        return out",
        "        relu_kernel[(triton.cdiv(count, 16384),)](out, out, count, BLOCK=16384, num_warps=8)\n        return out",
    ),
    "one warp spills": (
        *(LIMITS, "rms_norm/triton_rows", "num_warps=1", "softmax spills", "rms_norm_kernel", ""),
        *("num_warps=8", "num_warps=1"),
    ),
}
