"""A right candidate under NVIDIA's tools: a real judge, real sandboxes, and programs that stand for the tools.

The stand-ins start the program that they are given, as the tools do, and write what the real ones wrote on an H200
(`tool_reports`). `test_inspection_gpu.py` runs the real ones.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kerneldyno.cli import corpus
from kerneldyno.evaluator.judge.inspection import sanitizer as said
from kerneldyno.evaluator.judge.inspection.watched import Seen, Watcher
from kerneldyno.evaluator.judge.results.record import Record
from kerneldyno.evaluator.runner import counters, reports, sanitizer
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator.judge_harness import Judge, candidate, request, spec
from tests.evaluator.test_judge_outcomes import parse

pytestmark = pytest.mark.slow

LABEL = "MEMORY_ERRORS_LABEL"
REPORTS = Path(__file__).parent / "tool_reports"

#: Runs the observed program with fewer descriptors than it was started with, as a real tool may.
SANITIZER = """#!/bin/sh
while [ "$1" != "$PYTHON" ]; do
    case "$1" in
        --tool) tool="$2"; shift;;
        --log-file) log="$2"; shift;;
    esac
    shift
    [ $# -gt 0 ] || exit 9
done
"$@" 3<&- 4<&- 5<&- 6<&- 7<&- || true
echo "observed by $tool"
[ -f "$HOME/quiet" ] && exit 0
sed "s/prog.py/candidate.py/; s/at past+/at scaled_relu+/" {reports}/$tool.txt > "$log"
"""

NCU = """#!/bin/sh
case "$1" in
    --version) echo "Version 2025.3.1.0 (build 36398880)"; exit 0;;
    --import) while [ "$1" != --page ]; do shift; done; cat {reports}/ncu_$2.csv; exit 0;;
esac
while [ "$1" != "$PYTHON" ]; do
    case "$1" in
        --export) report="$2"; shift;;
        --log-file) log="$2"; shift;;
        --kernel-name) names="$2"; shift;;
    esac
    shift
    [ $# -gt 0 ] || exit 9
done
"$@" 3<&- 4<&- 5<&- 6<&- 7<&-
{forbidden}
echo report > "$report"
"""


def tools(folder: Path, forbidden: str = "") -> dict[str, str]:
    """Write the stand-ins below `folder`; return the environment of a judge that finds them."""
    (folder / "bin").mkdir(parents=True)
    reports = folder / "reports"
    reports.mkdir()
    for path in REPORTS.iterdir():
        (reports / path.name).write_bytes(path.read_bytes())
        (reports / path.name).chmod(0o644)
    for name, text in (("compute-sanitizer", SANITIZER), ("ncu", NCU)):
        program = folder / "bin" / name
        text = text.replace("{reports}", str(reports)).replace("{forbidden}", forbidden)
        program.write_text(text.replace('"$PYTHON"', f'"{sys.executable}"'))
        program.chmod(0o755)
    for path in (folder, *folder.parents):
        if path != Path("/") and os.access(path, os.W_OK) and path.owner() == Path("/tmp").owner():
            path.chmod(path.stat().st_mode | 0o55)
    return {"CUDA_HOME": str(folder)}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(environment=tools(tmp_path_factory.mktemp("cuda") / "home")) as running:
        yield running


def ask(**changes: Any) -> dict[str, Any]:
    return request(
        candidate(**{key: changes.pop(key) for key in ("prologue", "body", "end") if key in changes}), **changes
    )


def test_counters_come_back_with_advice(judge: Judge) -> None:
    result = parse(judge.evaluate(ask(profile_level="PROFILE_LEVEL_COUNTERS")))
    assert result.outcome == result.CORRECT, result.message
    assert not result.counters.unavailable, (result.counters.unavailable, result.logs)
    add, softmax, product = result.counters.kernels
    assert result.counters.tool == "Nsight Compute 2025.3.1.0"
    assert result.counters.seconds > 0
    assert (add.name, list(add.grid), list(add.block), add.registers) == ("add", [16384, 1, 1], [128, 1, 1], 26)
    assert add.duration_seconds == pytest.approx(44.48e-6)
    assert add.dram_throughput == pytest.approx(0.8485)
    assert add.flops == pytest.approx(1 << 24, rel=1e-3)  # one addition for each of 2^24 elements
    assert add.roof_share == pytest.approx(0.8485)
    assert add.occupancy_limiter == ""
    assert softmax.occupancy_limiter == "registers"
    assert product.occupancy_limiter == "registers, shared memory"
    assert product.tensor_throughput == pytest.approx(0.6753)
    assert [stall.reason for stall in product.stalls][:1] == ["barrier"]
    assert product.stalls[0].meaning
    assert product.advice[0].promise == pytest.approx(0.3247)
    assert all(each.promise >= later.promise for each, later in zip(product.advice, product.advice[1:], strict=False))


def test_errors_of_memory_make_a_right_candidate_incorrect(judge: Judge) -> None:
    result = parse(judge.evaluate(ask(sanitize="SANITIZE_ALL")))
    assert result.outcome == result.INCORRECT, result.message
    assert result.incorrect.kind == "memory"
    assert result.incorrect.trial == -4
    assert "candidate.py:27" in result.message
    memcheck = result.sanitizer.runs[0]
    assert (memcheck.tool, memcheck.finished) == ("memcheck", True)
    error = memcheck.reports[0]
    assert (error.kernel, error.file, error.line) == ("scaled_relu", "candidate.py", 27)
    # The planted kernels of the other reports are not this candidate's.
    assert [len(run.reports) for run in result.sanitizer.runs] == [1, 0, 0, 0]
    assert all(run.finished for run in result.sanitizer.runs)
    assert [found.id for found in result.findings if found.id.startswith("M0")] == ["M01"]


def test_by_policy_they_are_only_labels(judge: Judge) -> None:
    result = parse(judge.evaluate(ask(sanitize="SANITIZE_ALL", memory_errors="MEMORY_ERRORS_LABEL")))
    assert result.outcome == result.CORRECT, result.message
    assert "M01" in [found.id for found in result.findings]


def test_errors_of_one_kind_and_place_are_one_report() -> None:
    (error,) = sanitizer.read_errors((REPORTS / "initcheck.txt").read_text())
    assert error["what"] == "Uninitialized __global__ memory read of size 4 bytes"
    assert (error["kernel"], error["file"], error["line"]) == ("uninit(const float *, float *)", "planted.cu", 4)
    assert error["count"] > 1
    (error,) = sanitizer.read_errors((REPORTS / "racecheck.txt").read_text())
    assert error["what"] == "Error: Race reported between Write access at race(float *) in planted.cu:3"
    (error,) = sanitizer.read_errors((REPORTS / "synccheck.txt").read_text())
    assert error["what"].startswith("Barrier error detected")


@pytest.mark.parametrize("log", ["", "=========", "========= Invalid", "========= Invalid\n=========  at", "\0" * 99])
def test_a_garbled_log_has_no_place(log: str) -> None:
    assert all(error["kernel"] == "" for error in sanitizer.read_errors(log))


@pytest.mark.parametrize("page", ["", "ID", '"ID","Kernel Name"\n"1","k"\n"2"\n', 'x\n"ID"\n"', "\0"])
def test_a_garbled_page_has_rows_of_zeros_at_most(page: str) -> None:
    for row in counters.read_rows(page, page):
        assert row["dram_throughput"] == row["flops"] == 0


def test_only_winners_are_examined(judge: Judge) -> None:
    slow = ask(sanitize="SANITIZE_WINNERS", run_performance=True, body="import time; time.sleep(0.02)")
    result = parse(judge.evaluate(slow))
    assert result.outcome == result.CORRECT, result.message
    assert 0 < result.speedup < 1
    assert not result.HasField("sanitizer")


@pytest.mark.long
def test_a_candidate_that_dies_under_the_tool_keeps_its_verdict(judge: Judge) -> None:
    dies = "import os\nif 'PYTORCH_NO_CUDA_MEMORY_CACHING' in os.environ: os._exit(3)\n"
    result = parse(judge.evaluate(ask(sanitize="SANITIZE_ALL", prologue=dies, memory_errors="MEMORY_ERRORS_LABEL")))
    runs = result.sanitizer.runs[1:]  # the first stand-in says that this candidate's kernel is wrong
    assert [run.finished for run in runs] == [False] * 3
    assert all("ended before its calls did" in run.detail for run in runs)
    assert result.outcome == result.CORRECT, result.message


@pytest.mark.long
def test_a_candidate_that_hides_the_report_is_not_finished(judge: Judge) -> None:
    hides = "import os\nopen(os.path.join(os.environ['HOME'], 'quiet'), 'w').close()\n"
    result = parse(judge.evaluate(ask(sanitize="SANITIZE_ALL", prologue=hides)))
    assert result.outcome == result.CORRECT, result.message
    assert [run.finished for run in result.sanitizer.runs] == [False] * 4


def test_the_roof_of_tensor_cores_is_that_of_the_instruction_that_ran() -> None:
    # A float16 matmul of 2048 by Triton on an H200: 2 x 2048^3 operations, none of them sparse.
    metrics = {
        "gpu__time_duration.sum": "26,880",
        "smsp__cycles_elapsed.avg.per_second": "1,608,609,532.83",
        "dram__bytes.sum.per_second": "627,000,000,000",
        "sm__ops_path_tensor_src_fp16.sum.per_cycle_elapsed": "397,319.56",
        "sm__ops_path_tensor_src_fp16.sum.peak_sustained": "1,081,344",
        "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.per_cycle_elapsed": "397,319.56",
        "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained": "540,672",
        "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum.per_cycle_elapsed": "0",
        "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained": "360,448",
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": "16,896",
    }
    table = io.StringIO()
    csv.writer(table).writerows(
        [["ID", "Kernel Name", *metrics], ["", "", *metrics], ["0", "matmul", *metrics.values()]]
    )
    (row,) = counters.read_rows(table.getvalue(), "")
    assert row["flops"] == pytest.approx(2 * 2048**3, rel=0.01)
    assert row["roof_share"] == pytest.approx(0.735, abs=0.005)


def test_a_process_that_ends_under_a_tool_says_how(judge: Judge) -> None:
    ends = """
import os, sys
if os.path.exists(os.environ["HOME"] + "/door"):
    print("this is the last word", file=sys.stderr, flush=True)
    os.kill(-1, 9)
    os._exit(3)
"""
    result = parse(judge.evaluate(ask(profile_level="PROFILE_LEVEL_COUNTERS", prologue=ends)))
    assert result.outcome == result.CORRECT, result.message
    assert not result.counters.kernels
    assert "SIGKILL" in result.counters.unavailable
    assert "this is the last word" in result.counters.unavailable


def test_a_tool_that_does_not_start_is_named(tmp_path: Path) -> None:
    environment = tools(tmp_path / "home")
    for name in ("compute-sanitizer", "ncu"):
        program = tmp_path / "home" / "bin" / name
        program.write_text("#!/bin/sh\necho 'unknown option --tool'\nexit 7\n")
    with Judge(environment=environment) as running:
        asked = ask(profile_level="PROFILE_LEVEL_COUNTERS", sanitize="SANITIZE_ALL")
        result = parse(running.evaluate(asked))
    assert result.outcome == result.CORRECT, result.message
    for said_why in (result.counters.unavailable, *(run.detail for run in result.sanitizer.runs)):
        assert "ended with status 7" in said_why
        assert "unknown option --tool" in said_why


@pytest.mark.parametrize("name", ["sanitizer.log", "ncu.log", "counters.ncu-rep"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda place: os.symlink("/dev/zero", place)])
def test_something_else_in_place_of_a_report_holds_nobody_up(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    assert reports.text(tmp_path / name) == ""
    assert not reports.is_file(tmp_path / name)
    if name == "sanitizer.log":
        assert sanitizer.Tool({"name": "memcheck"}, str(tmp_path)).read() == {"errors": [], "finished": False}
    else:
        assert counters.Tool({"kernels": []}, str(tmp_path)).read()["kernels"] == []


def test_a_candidate_that_forges_the_report_only_hurts_itself(judge: Judge) -> None:
    forged = (
        "{'report': {'kernels': [{'name': chr(27) + 'x' * 5000, 'dram_throughput': 7, 'registers': -1, 'stalls': 3}]}}"
    )
    forges = (
        "import json, os, socket, struct\n"
        f"body = json.dumps({forged}).encode()\n"
        "for fd in range(3, 32):\n"
        "    try: socket.socket(fileno=os.dup(fd)).sendall(struct.pack('>I', len(body)) + body)\n"
        "    except OSError: pass\n"
    )
    guarded = "import os\nif os.path.exists(os.environ['HOME'] + '/door'):\n" + "".join(
        f"    {line}\n" for line in forges.splitlines()
    )
    result = parse(judge.evaluate(ask(profile_level="PROFILE_LEVEL_COUNTERS", prologue=guarded)))
    assert result.outcome == result.CORRECT, result.message
    (row,) = result.counters.kernels
    assert len(row.name) <= 200
    assert chr(27) not in row.name
    assert row.dram_throughput == 1
    assert row.registers == 0


WORKLOADS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs(rows):
    return [torch.randn(rows, 128)]
"""
RELU = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


@pytest.mark.long
def test_of_several_workloads_the_last_one_is_inspected(judge: Judge) -> None:
    workloads = [{"name": "small", "value_json": "8"}, {"name": "large", "value_json": "64"}]
    changes = {"reference_code": WORKLOADS, "workloads": workloads, "backend": "torch"}
    result = parse(judge.evaluate(request(RELU, sanitize="SANITIZE_ALL", memory_errors=LABEL, **changes)))
    assert result.outcome == result.CORRECT, result.message
    assert len(result.workloads) == 2
    assert len(result.sanitizer.runs) == 4
    assert sum(span.stage == pb.STAGE_PROFILING for span in result.stages) == 1


@pytest.mark.long
def test_a_backward_pass_is_inspected_as_well(judge: Judge) -> None:
    changes = {"reference_code": WORKLOADS.replace("(rows)", "()").replace("rows", "8"), "backend": "torch"}
    asked = request(RELU, sanitize="SANITIZE_ALL", memory_errors=LABEL, backward=True, **changes)
    result = parse(judge.evaluate(asked))
    assert result.outcome == result.CORRECT, result.message
    assert all(run.finished for run in result.sanitizer.runs), result.sanitizer


@pytest.mark.long
def test_cases_without_a_reference_are_inspected(judge: Judge) -> None:
    code = "import torch\ndef double(x):\n    return 2 * x\n"
    cases = "import torch\ndef get_cases():\n    x = torch.ones(4)\n    return [{'inputs': [x], 'expected': 2 * x}]\n"
    changes = {"toolkit": "kernel_simple", "entry_point": "double", "cases_code": cases, "backend": "torch"}
    asked = request(code, reference_code="", sanitize="SANITIZE_ALL", memory_errors=LABEL, **changes)
    result = parse(judge.evaluate(asked))
    assert result.outcome == result.CORRECT, result.message
    assert all(run.finished for run in result.sanitizer.runs), result.sanitizer


def attack(source: str) -> dict[str, Any]:
    """Return the request of an attack of the corpus, for whose problem the candidate of these tests is right."""
    head, _, _ = source.partition("class ModelNew")
    code = candidate(prologue=head.partition('"""')[2].partition('"""')[2])
    return request(code, sanitize="SANITIZE_ALL", profile_level="PROFILE_LEVEL_COUNTERS", memory_errors=LABEL)


def test_no_wall_opens_under_a_tool(judge: Judge) -> None:
    entry = corpus.read(corpus.find() / "attacks" / "E24_under_a_tool.py")
    result = parse(judge.evaluate(attack(entry.source)))
    assert corpus.shortfall(entry, result) is None
    assert all(run.finished for run in result.sanitizer.runs), result.sanitizer
    assert result.counters.kernels


def test_a_wall_that_opens_under_a_tool_is_seen(judge: Judge) -> None:
    entry = corpus.read(corpus.find() / "attacks" / "E24_under_a_tool.py")
    asked = attack(entry.source.replace('"reads passwords"', '"x": lambda: None, "reads passwords"'))
    result = parse(judge.evaluate({**asked, "profile_level": "PROFILE_LEVEL_NONE"}))
    assert "ESCAPED: x under a tool" in (corpus.shortfall(entry, result) or "")


async def test_a_candidate_that_hangs_under_one_tool_is_not_run_under_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Watcher):
        async def watch(self, tool: dict[str, Any], *, warm: bool) -> Seen:
            return Seen(failed="took longer than 180 s", seconds=180.0 if tool["name"] == "racecheck" else 1.0)

    monkeypatch.setattr(said, "find", lambda name: name)
    nothing: Any = None
    report = await said.examine(Hanging(nothing, spec(RELU), nothing, nothing, nothing))
    assert [round(run.seconds) for run in report.runs] == [1, 180, 0, 0]
    assert ["not started" in run.detail for run in report.runs] == [False, False, True, True]


@pytest.mark.parametrize(("access", "finding"), [("read", "M02"), ("write", "M01"), ("atomic", "M01")])
def test_an_atomic_access_outside_is_a_write(access: str, finding: str) -> None:
    error = pb.MemoryError(what=f"Invalid __global__ {access} of size 4 bytes", kernel="work", count=1)
    report = pb.SanitizerReport(runs=[pb.SanitizerRun(tool="memcheck", finished=True, errors=1, reports=[error])])
    judged = spec(RELU, memory_errors=LABEL)
    result = said.apply(report, pb.EvalResult(outcome=pb.EvalResult.CORRECT), Record(), judged)
    assert [found.id for found in result.findings] == [finding]


def test_a_driver_that_forbids_counters_is_named(tmp_path: Path) -> None:
    refuses = 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission" > "$log"; exit 1'
    with Judge(environment=tools(tmp_path / "home", refuses)) as running:
        result = parse(running.evaluate(ask(profile_level="PROFILE_LEVEL_COUNTERS")))
    assert result.outcome == result.CORRECT
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result.counters.unavailable
    assert not result.counters.kernels


def test_a_node_without_the_tools_says_how_to_get_them(tmp_path: Path) -> None:
    with Judge(environment={"CUDA_HOME": str(tmp_path), "PATH": "/nowhere:/usr/bin:/bin"}) as running:
        result = parse(running.evaluate(ask(profile_level="PROFILE_LEVEL_COUNTERS", sanitize="SANITIZE_ALL")))
    assert result.outcome == result.CORRECT
    assert "ncu" in result.counters.unavailable
    assert all("compute-sanitizer is not installed" in run.detail for run in result.sanitizer.runs)
