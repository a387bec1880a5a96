"""What a person sees of a verdict: everything that matters, and nothing that a candidate could steer a terminal with."""

from __future__ import annotations

import io
from collections import Counter

from google.protobuf.duration_pb2 import Duration
from kerneldyno.client import EvalResult
from kerneldyno.client.cli.cards import plain, seconds, summary_table, verdict_card
from kerneldyno.v1.evaluation_pb2 import (
    LAUNCH_MODE_CUDA_GRAPH,
    STAGE_COMPILING,
    CrashEvidence,
    ExceptionEvidence,
    Finding,
    Interval,
    Roofline,
    StageSpan,
    TimingStats,
)
from rich.console import Console, RenderableType


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
