"""Tests of the text that shows a verdict to a person: it has all that matters, and no control codes of a candidate."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from google.protobuf.duration_pb2 import Duration
from rich.console import Console, RenderableType

from kerneldyno.cli.cards import plain, summary_table, verdict_card
from kerneldyno.client import EvalResult
from kerneldyno.report.units import seconds
from kerneldyno.report.wording import facts, speedup_words
from kerneldyno.v1.evaluation_pb2 import (
    LAUNCH_MODE_CUDA_GRAPH,
    REFERENCE_BACKEND_TORCH_COMPILE,
    SPEEDUP_KIND_DEVICE,
    SPEEDUP_KIND_END_TO_END,
    STAGE_COMPILING,
    CrashEvidence,
    ExceptionEvidence,
    Finding,
    Interval,
    NativeBuild,
    Roofline,
    StageSpan,
    TimingStats,
)

pytestmark = pytest.mark.pure


def shown(card: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(card)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_timed_candidate() -> None:
    timing = TimingStats(
        median_seconds=1.5e-5, p10_seconds=1e-5, p90_seconds=2e-5, samples=100, clock=TimingStats.CLOCK_JUDGE
    )
    result = EvalResult(
        id="softmax-1",
        outcome=EvalResult.CORRECT,
        speedup=1.4,
        speedup_interval=Interval(low=1.3, high=1.5),
        candidate_timing=timing,
        findings=[Finding(id="P2", severity=Finding.SEVERITY_WARNING, evidence="a mutant would pass")],
        stages=[StageSpan(stage=STAGE_COMPILING, duration=Duration(nanos=250_000_000))],
    )
    text = shown(verdict_card(result))
    for part in (
        "CORRECT  1.40x",
        "between 1.300 and 1.500",
        "15 us",
        "clock: judge",
        "warning P2",
        "compiling 250 ms",
    ):
        assert part in text
    assert "graph" not in text
    result.candidate_timing.launch_mode = LAUNCH_MODE_CUDA_GRAPH
    assert "clock: judge, as a CUDA graph)" in shown(verdict_card(result))


def test_builds_have_a_line_each() -> None:
    lean, full, failed = NativeBuild.HEADERS_LEAN, NativeBuild.HEADERS_FULL, NativeBuild.HEADERS_UNSPECIFIED
    result = EvalResult(
        outcome=EvalResult.CORRECT,
        builds=[
            NativeBuild(name="native", headers=lean, cached=True, seconds=3.21),
            NativeBuild(name="my_op", headers=full, seconds=41.0),
            NativeBuild(name="bro\x1b[31mken", headers=failed, failed=True),
        ],
    )
    text = "\n".join(map(str.rstrip, shown(verdict_card(result)).splitlines())) + "\n"
    assert "native: lean headers, cached, 3.21 s\n" in text
    assert "my_op: full headers, 41 s\n" in text
    assert "bro[31mken: failed\n" in text


def both_times(regime: TimingStats.Regime.ValueType = TimingStats.REGIME_QUEUED_AHEAD) -> EvalResult:
    result = EvalResult(
        outcome=EvalResult.CORRECT,
        speedup=1.5,
        speedup_interval=Interval(low=1.4, high=1.6),
        end_to_end_speedup=3.0,
        end_to_end_speedup_interval=Interval(low=2.9, high=3.1),
        candidate_timing=TimingStats(median_seconds=4e-5, clock=TimingStats.CLOCK_DEVICE_EVENTS, regime=regime),
        reference_timing=TimingStats(median_seconds=6e-5, clock=TimingStats.CLOCK_DEVICE_EVENTS, regime=regime),
        candidate_end_to_end=TimingStats(median_seconds=6.1e-5, clock=TimingStats.CLOCK_EACH_CALL, regime=regime),
        reference_end_to_end=TimingStats(median_seconds=1.8e-4, clock=TimingStats.CLOCK_EACH_CALL, regime=regime),
        speedup_kind=SPEEDUP_KIND_DEVICE,
    )
    effort = result.timing_effort
    effort.lease_seconds, effort.rounds, effort.candidate_calls, effort.reference_calls = 0.4, 8, 240, 220
    return result


def test_baselines_are_named() -> None:
    result = both_times()
    result.baselines.add(backend=REFERENCE_BACKEND_TORCH_COMPILE, speedup=1.2)
    result.baselines.add(name="[red]fast[/red] 2.8", speedup=0.9)
    result.baselines.add(
        name="other", error="ValueError: in a timed call 1 of 2 elements of output are out of tolerance"
    )
    told = dict(facts(result))
    assert (told["beside torch compile"], told["beside [red]fast[/red] 2.8"]) == ("1.20x", "0.90x")
    assert told["beside other"].startswith("ValueError: in a timed call")
    assert "beside [red]fast[/red] 2.8" in shown(verdict_card(result))


def test_both_speedups_and_the_one_that_counts() -> None:
    result = both_times()
    told = dict(facts(result))
    assert list(told) == [
        *("speedup", "other speedup", "candidate", "reference", "candidate, end to end", "reference, end to end"),
        *("regime", "timed in"),
    ]
    assert told["speedup"] == "1.500 by device time (95 % between 1.400 and 1.600), which counts"
    assert told["other speedup"] == "3.000 end to end (95 % between 2.900 and 3.100)"
    assert told["candidate, end to end"].startswith("61 us")
    assert "clock: each call" in told["reference, end to end"]
    assert told["regime"] == "queued ahead: device time is without the host's work"
    assert told["timed in"] == "400 ms, 8 rounds, 240 calls of the candidate, 220 of the reference"
    title = shown(verdict_card(result)).splitlines()[0]
    assert "CORRECT  1.50x" in title
    assert "end to end" not in title

    result.speedup_kind = SPEEDUP_KIND_END_TO_END
    told = dict(facts(result))
    assert told["speedup"] == "3.000 end to end (95 % between 2.900 and 3.100), which counts"
    assert told["other speedup"] == "1.500 by device time (95 % between 1.400 and 1.600)"
    assert "CORRECT  3.00x end to end" in shown(verdict_card(result))


def test_a_speedup_that_counts_and_was_not_measured_is_not_the_other_one() -> None:
    older = EvalResult(
        outcome=EvalResult.CORRECT,
        speedup=1.5,
        speedup_interval=Interval(low=1.4, high=1.6),
        candidate_timing=TimingStats(median_seconds=4e-5),
        speedup_kind=SPEEDUP_KIND_END_TO_END,
    )
    told = dict(facts(older))
    assert told["speedup"] == "not measured end to end, which is the time that counts"
    assert told["other speedup"] == "1.500 by device time (95 % between 1.400 and 1.600)"
    assert "1.50x" not in shown(verdict_card(older))
    assert speedup_words(older) == ""
    older.speedup_kind = SPEEDUP_KIND_DEVICE
    assert dict(facts(older))["speedup"] == "1.500 by device time (95 % between 1.400 and 1.600)"
    assert not {"other speedup", "regime", "timed in"} & set(dict(facts(older)))


def test_calls_that_are_not_queued_ahead_have_one_time() -> None:
    result = both_times(TimingStats.REGIME_AS_CALLED)
    told = dict(facts(result))
    assert told["speedup"] == "1.500 by device time (95 % between 1.400 and 1.600), which counts"
    assert told["regime"] == "as called: the host's work is in both times"
    assert "candidate, end to end" not in told
    assert "paid" not in told
    result.reference_timing.queued_seconds = 5e-5
    assert dict(facts(result))["paid"] == "at most 1.25x: queued ahead, the reference is faster (finding T31)"
    result.speedup_kind = SPEEDUP_KIND_END_TO_END
    assert "paid" not in dict(facts(result))


def test_the_roofline() -> None:
    result = EvalResult(outcome=EvalResult.CORRECT)
    assert "roof" not in shown(verdict_card(result)), "an older node does not tell"
    memory = Roofline(
        bytes=12_600_000, bytes_per_second=4.1e12, least_seconds=3.07e-6, share=0.43, bound=Roofline.BOUND_MEMORY
    )
    result.roofline.CopyFrom(memory)
    assert "43% of the roof (memory: 12.6 MB at 4.1 TB/s take 3.07 us)" in shown(verdict_card(result))
    compute = Roofline(
        flops=1_100_000_000_000,
        flops_per_second=7e14,
        least_seconds=1.57e-3,
        share=0.0042,
        bound=Roofline.BOUND_COMPUTE,
    )
    result.roofline.CopyFrom(compute)
    assert "0.42% of the roof (compute: 1.1 TFLOP at 700 TFLOP/s take 1.57 ms)" in shown(verdict_card(result))
    for strange in (Roofline(share=0.5), Roofline(bound=Roofline.BOUND_MEMORY, share=float("nan"))):
        result.roofline.CopyFrom(strange)
        assert "roof" not in shown(verdict_card(result))


def test_the_candidates_traceback_is_shown_and_can_do_nothing() -> None:
    raised = ExceptionEvidence(
        stage="compile",
        type="RuntimeError",
        message="[bold]boom[/bold] \x1b[2J",
        traceback='File "candidate.py", line 7, in forward\n    x = [/nonsense]',
    )
    result = EvalResult(
        outcome=EvalResult.RUNTIME_ERROR,
        runtime_error=CrashEvidence(kind="exception", stage="compile", exception=raised),
    )
    text = shown(verdict_card(result))
    assert 'File "candidate.py", line 7' in text
    assert "x = [/nonsense]" in text
    assert "RuntimeError: [bold]boom[/bold] [2J" in text
    assert "\x1b" not in text


def test_a_signal_and_an_invalid_field() -> None:
    crash = EvalResult(
        outcome=EvalResult.RUNTIME_ERROR, runtime_error=CrashEvidence(kind="signal", signal=11, stage="load")
    )
    assert "signal 11 in stage load" in shown(verdict_card(crash))
    invalid = EvalResult(outcome=EvalResult.INVALID)
    invalid.invalid.violations.add(field="tolerance.atol", description="must be finite")
    assert "tolerance.atol" in shown(verdict_card(invalid))


def test_summary() -> None:
    text = shown(summary_table(Counter({"CORRECT": 3, "TIMEOUT": 1}), "4 requests"))
    assert "75.0%" in text
    assert "TIMEOUT" in text
    assert "4 requests" in text
    assert "0 requests" in shown(summary_table(Counter(), "0 requests"))


def test_plain_and_seconds() -> None:
    assert plain("a\tb\r\n\x07c\u202e").plain == "a   b\nc"
    assert [seconds(value) for value in (2.5, 0.012, 3.4e-6, 5e-9)] == ["2.5 s", "12 ms", "3.4 us", "5 ns"]


def test_who_answered_and_which_work_it_was() -> None:
    own = EvalResult(id="a", outcome=EvalResult.CORRECT, digest="3f" * 32)
    assert "3f" * 32 in shown(verdict_card(own))
    assert "another request" not in shown(verdict_card(own))
    assert "another request had started" in shown(verdict_card(EvalResult(id="a", merged=True)))
    assert "an earlier run" in shown(verdict_card(EvalResult(id="a", cached=True)))


def test_memory_is_told_in_one_line_and_what_did_not_fit_in_another() -> None:
    result = EvalResult(outcome=EvalResult.PROBLEM_TOO_LARGE)
    assert not {"memory", "too large"} & set(dict(facts(result)))
    result.memory_use.planned_bytes = 12 << 30
    assert dict(facts(result))["memory"] == "12 GiB planned"
    result.memory_use.candidate_limit_bytes = 3 << 29
    assert dict(facts(result))["memory"] == "12 GiB planned, limit of the candidate 1.5 GiB"
    evidence = result.problem_too_large
    evidence.memory, evidence.stage, evidence.device_bytes = "device", "inputs", 78 << 30
    assert dict(facts(result))["too large"] == "inputs: 78 GiB of device memory to be had"
    evidence.needed_bytes = 100 << 30
    assert dict(facts(result))["too large"].endswith(", needs at least 100 GiB")
    starved = EvalResult(outcome=EvalResult.OUT_OF_MEMORY)
    starved.out_of_memory.memory, starved.out_of_memory.stage = "device", "compile"
    assert dict(facts(starved))["out of"] == "device memory in stage compile"
    starved.out_of_memory.limit_bytes = 64 << 20
    assert dict(facts(starved))["out of"] == "device memory in stage compile, limit 64 MiB"


def test_a_small_or_large_speedup_is_never_shown_as_nothing() -> None:
    result = both_times()
    for speedup, title, told in (
        (
            2.6e-05,
            "CORRECT  0.000026x",
            "0.0000260 by device time (95 % between 0.0000234 and 0.0000286), which counts",
        ),
        (0.0087, "CORRECT  0.0087x", "0.00870 by device time (95 % between 0.00783 and 0.00957), which counts"),
        (31.4159, "CORRECT  31.4x", "31.42 by device time (95 % between 28.27 and 34.56), which counts"),
        (123456.7, "CORRECT  123457x", "123457 by device time (95 % between 111111 and 135802), which counts"),
    ):
        result.speedup = speedup
        result.speedup_interval.low, result.speedup_interval.high = 0.9 * speedup, 1.1 * speedup
        assert dict(facts(result))["speedup"] == told
        assert title == shown(verdict_card(result)).splitlines()[0].strip()


def test_what_has_no_numeric_error_shows_none() -> None:
    result = EvalResult(outcome=EvalResult.INCORRECT)
    result.correctness.total_trials = 1
    for kind in ("structure", "shape", "dtype", "device"):
        result.incorrect.kind = kind
        assert dict(facts(result))["correctness"] == "0 of 1 trials"
    result.incorrect.kind = "values"
    result.correctness.max_abs_error, result.correctness.max_error_ratio = 0.01, 120.0
    assert dict(facts(result))["correctness"] == "0 of 1 trials, largest error 0.01 (120x of what is allowed)"
    right = EvalResult(outcome=EvalResult.CORRECT)
    right.correctness.passed_trials = right.correctness.total_trials = 5
    assert dict(facts(right))["correctness"] == "5 of 5 trials, largest error 0 (0x of what is allowed)"
    crashed = EvalResult(outcome=EvalResult.RUNTIME_ERROR)
    crashed.correctness.total_trials = 1
    assert dict(facts(crashed))["correctness"] == "0 of 1 trials", "nothing was compared"


def test_each_kernel_has_a_line_about_its_registers() -> None:
    result = EvalResult(outcome=EvalResult.CORRECT)
    result.kernel_code.add(name="add", origin="triton", registers=40, shared_memory_bytes=2048, warps=4)
    result.kernel_code.add(name="void sum<4>(float*)", origin="native.so", registers=255, spill_bytes=1040)
    lines = [value for name, value in facts(result) if name == "kernel"]
    assert lines == [
        "add (triton): 40 registers, no spills, 2 KiB shared memory, 4 warps",
        "void sum<4>(float*) (native.so): 255 registers, 1.02 KiB spilled or in local arrays, 0 bytes shared memory",
    ]
    for _ in range(10):
        result.kernel_code.add(name="add", origin="triton", registers=40)
    lines = [value for name, value in facts(result) if name == "kernel"]
    assert (len(lines), lines[-1]) == (9, "and 4 more")


def test_an_invalid_request_is_told_once() -> None:
    result = EvalResult(outcome=EvalResult.INVALID, message="backend: 'x' is unknown; num_correct_trials: is 99")
    result.invalid.violations.add(field="backend", description="'x' is unknown")
    result.invalid.violations.add(field="num_correct_trials", description="is 99")
    result.invalid.violations.add(field="labels", description="are 17")
    text = shown(verdict_card(result))
    assert text.count("'x' is unknown") == text.count("is 99") == 1
    assert text.count("are 17") == 1, "the message names the first three only"
    line = EvalResult(outcome=EvalResult.INVALID, message="line 3: is not JSON")
    line.invalid.violations.add(description="line 3: is not JSON")
    assert shown(verdict_card(line)).count("is not JSON") == 1


def test_the_device_time_that_is_not_its_own_has_owners() -> None:
    result = EvalResult(outcome=EvalResult.CORRECT, coverage=0.4)
    result.profile.device_time_coverage, result.profile.library_share, result.profile.memory_share = 0.4, 0.599, 0.001
    told = " ".join(shown(verdict_card(result)).split())
    assert "40.0% of device time in the candidate's kernels (59.9% in libraries', 0.1% in copies and fills)" in told
