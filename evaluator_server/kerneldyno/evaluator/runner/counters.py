"""Nsight Compute: how it is started, and its report as plain rows, one for each observed launch.

It runs each launch again and again, until all counters are read. Sections are named one by one, so that the table does
not depend on what a version of the tool calls "basic". Sources: Nsight Compute CLI
(https://docs.nvidia.com/nsight-compute/NsightComputeCli/), and the metrics reference in its Profiling Guide.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..shared.cuda_tools import find
from . import reports

#: Most launches that are observed.
MOST_LAUNCHES = 16
#: Longest name of a kernel, in characters.
_NAME = 400
#: Most pieces of advice that are kept for a launch, and their length in characters.
_MOST_ADVICE, _ADVICE_LENGTH = 8, 600
#: More names than this are not given to the tool; then it observes the first launches, whatever they are.
_MOST_NAMES = 50
#: Seconds to read the report file.
_IMPORT_SECONDS = 60
_SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart",
    "LaunchStats",
    "Occupancy",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
)
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_SHARED_PASSES = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
#: Fields of a row that are shares of a peak, and the metrics (in percent) that hold them.
_SHARES = {
    "dram_throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm_throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_throughput": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "achieved_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "theoretical_occupancy": "sm__maximum_warps_per_active_cycle_pct",
}
#: Fields that are plain numbers.
_NUMBERS = {
    "registers": "launch__registers_per_thread",
    "shared_memory_bytes": "launch__shared_mem_per_block",
    "instructions_per_cycle": "sm__inst_executed.avg.per_cycle_elapsed",
    "spill_instructions": "sass__inst_executed_register_spilling",
    "bank_conflicts": _CONFLICTS,
}
_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
_LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
#: Operations of one instruction of a thread outside the tensor cores.
_SCALAR = re.compile(r"smsp__sass_thread_inst_executed_op_([dfh])(add|mul|fma)_pred_on\.sum\.per_cycle_elapsed")
#: Operations of the tensor cores, and those of one instruction of theirs. Only the peak of an instruction is that of its
#: path: the peak of all together is the sparse one, which a dense kernel cannot have.
_TENSOR = re.compile(r"sm__ops_path_tensor_(op_\w+_)?src_\w+\.sum\.per_cycle_elapsed")
_FP32_PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
#: What the tool prints when the driver lets only administrators read counters.
_FORBIDDEN = "ERR_NVGPUCTRPERM"


class Tool:
    """One run of Nsight Compute, with the files that it leaves in the scratch."""

    def __init__(self, asked: dict[str, Any], scratch: str) -> None:
        """Prepare a run; `asked` has the plain names of the `kernels` to observe, or none for all."""
        self._report, self._log = Path(scratch, "counters.ncu-rep"), Path(scratch, "ncu.log")
        self._program = find("ncu") or "ncu"
        sections = [word for section in _SECTIONS for word in ("--section", section)]
        #: The beginning of the command line; the program to be observed follows.
        self.command = [
            self._program,
            *("--profile-from-start", "off", "--clock-control", "none", "--target-processes", "application-only"),
            *("--launch-count", str(MOST_LAUNCHES), "--metrics", f"{_CONFLICTS},{_SHARED_PASSES}"),
            *("--log-file", str(self._log), "--export", str(self._report), "--force-overwrite"),
            *sections,
            *_only(asked["kernels"]),
        ]
        self.environment: dict[str, str] = {}

    def read(self) -> dict[str, Any]:
        """Return the rows of `kernels`, the tool's `version`, and whether counters are `forbidden`."""
        said = reports.text(self._log)
        rows: list[dict[str, Any]] = []
        if reports.is_file(self._report):
            raw, details = (self._page(page) for page in ("raw", "details"))
            rows = read_rows(raw, details)
        return {
            "kernels": rows,
            "version": _version(self._output("--version")),
            "forbidden": _FORBIDDEN in said,
            "said": "\n".join(line for line in said.splitlines() if line.startswith("==ERROR=="))[:500],
        }

    def _page(self, page: str) -> str:
        return self._output("--import", str(self._report), "--csv", "--page", page, "--print-units", "base")

    def _output(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [self._program, *arguments], capture_output=True, text=True, errors="replace", timeout=_IMPORT_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout


def _only(kernels: list[str]) -> list[str]:
    """Return the option that restricts the tool to kernels of these names, if there are some."""
    if not 0 < len(kernels) <= _MOST_NAMES:
        return []
    return ["--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})$"]


def _version(text: str) -> str:
    found = re.search(r"Version ([\d.]+)", text)
    return f"Nsight Compute {found[1]}" if found else "Nsight Compute"


def read_rows(raw: str, details: str) -> list[dict[str, Any]]:
    """Return a row for each launch, from the tool's pages "raw" and "details" as CSV with base units."""
    advice: dict[str, list[dict[str, Any]]] = {}
    for line in _table(details):
        if line.get("Rule Type") == "OPT":
            advice.setdefault(line["ID"], []).append(_advice(line))
    rows = [_row(line) for line in _table(raw) if line.get("ID")]
    for row in rows:
        found = sorted(advice.get(row.pop("id"), []), key=lambda each: -each["promise"])
        row["advice"] = found[:_MOST_ADVICE]
    return rows[:MOST_LAUNCHES]


def _table(page: str) -> Iterator[dict[str, str]]:
    """Yield the lines of a page by column, without what the tool printed before the table."""
    header: list[str] | None = None
    for line in csv.reader(io.StringIO(page)):
        if header is None:
            header = line if line[:1] == ["ID"] else None
        elif len(line) == len(header):
            yield dict(zip(header, line, strict=True))


def _advice(line: dict[str, str]) -> dict[str, Any]:
    # "global" is what the whole kernel may gain; "local" only says how much of one unit is unused.
    promise = (
        _number(line.get("Estimated Speedup", "")) / 100 if line.get("Estimated Speedup Type") == "global" else 0.0
    )
    return {"rule": line["Rule Name"], "text": line["Rule Description"][:_ADVICE_LENGTH], "promise": promise}


def _row(line: dict[str, str]) -> dict[str, Any]:
    value = {name: _number(text) for name, text in line.items()}
    row: dict[str, Any] = {
        "id": line["ID"],
        "name": line["Kernel Name"][:_NAME],
        "grid": _sizes(line.get("Grid Size", "")),
        "block": _sizes(line.get("Block Size", "")),
        "duration_seconds": value.get("gpu__time_duration.sum", 0.0) * 1e-9,
    }
    row |= {field: value.get(metric, 0.0) / 100 for field, metric in _SHARES.items()}
    row |= {field: value.get(metric, 0.0) for field, metric in _NUMBERS.items()}
    row["occupancy_limiter"] = _limiter(value, row["theoretical_occupancy"])
    latency = value.get(_LATENCY, 0.0)
    stalls = {found[1]: ratio for name, ratio in value.items() if (found := _STALL.fullmatch(name))}
    row["stalls"] = [
        [name, ratio / latency] for name, ratio in stalls.items() if latency and ratio and name != "selected"
    ]
    passes = value.get(_SHARED_PASSES, 0.0)
    row["bank_conflict_share"] = row["bank_conflicts"] / passes if passes else 0.0
    return row | _roofline(value, row["duration_seconds"], row["dram_throughput"])


def _limiter(value: dict[str, float], occupancy: float) -> str:
    """Return which resources allow the fewest blocks of a multiprocessor, unless they leave it full."""
    blocks = {name: value[metric] for name, metric in _LIMITS.items() if value.get(metric)}
    if not blocks or occupancy >= 1:
        return ""
    return ", ".join(name for name, count in blocks.items() if count == min(blocks.values()))


def _roofline(value: dict[str, float], seconds: float, dram_share: float) -> dict[str, float]:
    """Return where a launch is on the roofline: its operations and bytes, and its share of the lower roof.

    The roof of arithmetic is that of float32, or that of the tensor cores if they do most of the operations.
    """
    per_second = value.get("smsp__cycles_elapsed.avg.per_second", 0.0)
    scalar = tensor = 0.0
    paths: list[tuple[bool, float, float]] = []
    for name, per_cycle in value.items():
        if found := _SCALAR.fullmatch(name):
            scalar += per_cycle * (2 if found[2] == "fma" else 1) * (2 if found[1] == "h" else 1)
        elif (found := _TENSOR.fullmatch(name)) and per_cycle:
            tensor += 0 if found[1] else per_cycle
            peak = value.get(name.replace(".per_cycle_elapsed", ".peak_sustained"), 0.0)
            paths.append((found[1] is not None, per_cycle, peak))
    # The roof is that of the instruction with most operations.
    peak = max(paths)[2] if tensor > scalar else 2 * value.get(_FP32_PEAK, 0.0)
    rate, roof = (scalar + tensor) * per_second, peak * per_second
    bandwidth = value.get("dram__bytes.sum.per_second", 0.0)
    intensity = rate / bandwidth if bandwidth else 0.0
    arithmetic = rate / roof if roof else 0.0
    return {
        "dram_bytes": bandwidth * seconds,
        "flops": rate * seconds,
        "flops_per_second": rate,
        "arithmetic_intensity": intensity,
        "roof_share": max(arithmetic, dram_share),
    }


def _number(text: str) -> float:
    """Return a number as the tool prints it, such as "12,353.5"; 0 if it is none ("no data")."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _sizes(text: str) -> list[int]:
    """Return the numbers in "(16, 16, 1)"."""
    return [int(word) for word in re.findall(r"\d+", text)][:3]
