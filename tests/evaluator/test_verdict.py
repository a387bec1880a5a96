"""What verdicts say, and that all of it can be sent and read. These tests need no processes."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest

from kerneldyno.evaluator.judge import frames
from kerneldyno.evaluator.judge.comparison.evidence import Mismatch
from kerneldyno.evaluator.judge.results import verdict
from kerneldyno.evaluator.judge.results.record import Record
from kerneldyno.evaluator.judge.results.stages import Stages
from kerneldyno.evaluator.judge.runners.answers import read_error
from kerneldyno.evaluator.judge.runners.handle import ExitReport
from kerneldyno.evaluator.shared import messages, wire
from kerneldyno.evaluator.shared.tracebacks import ErrorDescription
from kerneldyno.v1 import evaluation_pb2 as pb

pytestmark = pytest.mark.pure

#: Contains a lone surrogate, which no protobuf message can hold, and a control character.
ODD = "a\ud800b\x1bc"
ODD_ERROR = ErrorDescription(ODD, (ODD,), ODD, ODD)
LIMITS = verdict.Limits(1 << 30, 1 << 32)


def received(result: pb.EvalResult) -> pb.EvalResult:
    """Return what the server reads of a result that the judge sends."""
    said = wire.decode(wire.encode(frames.result("attempt", result))[4:])
    return messages.unpack(pb.EvalResult, said["result"])


@pytest.mark.parametrize(
    ("stopped", "message"),
    [
        (0.0, "compile took longer than 60 s"),
        (0.04, "compile took longer than 60 s"),
        (12.34, "compile took longer than 60 s, without the 12.3 s for which it was stopped"),
    ],
)
def test_who_was_late_is_told_what_did_not_count(stopped: float, message: str) -> None:
    result = verdict.late("compile", 60.0, stopped)
    assert result.message == message
    assert result.timeout == pb.TimeoutEvidence(stage="compile", limit_seconds=60.0)


RESULTS = {
    "raised in load": verdict.raised("load", ODD_ERROR, LIMITS),
    "raised in a call": verdict.raised("correctness", ODD_ERROR, LIMITS),
    "out of memory": verdict.raised("timing", ErrorDescription(ODD, ("OutOfMemoryError",), ODD, ODD), LIMITS),
    "lazy": verdict.raised("timing", ErrorDescription(ODD, ("NotPlainTensorError",), ODD, ODD), LIMITS),
    "incorrect": verdict.incorrect(Mismatch("output", "structure", ODD), 0, pb.CorrectnessReport(), []),
    "rejected": verdict.rejected([verdict.finding("E03", pb.Finding.SEVERITY_REJECT, ODD)], None, compiled=True),
    "invalid": verdict.invalid("kernel_code", ODD),
    "reference": verdict.reference_failed("build", ODD_ERROR),
    "infrastructure": verdict.infrastructure("JUDGE_ERROR", ODD, retryable=True),
    "printed": verdict.complete(verdict.late("load", 1.0, 0.0), [], [], None, ODD),
}


@pytest.mark.parametrize("how", RESULTS)
def test_text_that_is_no_unicode_is_made_valid_before_it_is_sent(how: str) -> None:
    result = RESULTS[how]
    assert received(result) == result
    assert "a?b" in str(result)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_can_be_read(number: float) -> None:
    mismatch = Mismatch("output", "values", "wrong", 1, 1, number, number)
    found = received(verdict.incorrect(mismatch, 0, pb.CorrectnessReport(max_abs_error=number), []))
    for seen in (found.incorrect.max_abs_error, found.incorrect.max_error_ratio, found.correctness.max_abs_error):
        assert seen == number or (math.isnan(number) and math.isnan(seen))


@pytest.mark.parametrize(
    "said",
    [
        None,
        3,
        [],
        {},
        {"type": 1, "bases": "OutOfMemoryError", "message": [2], "traceback": None},
        {"bases": [1, None]},
    ],
)
def test_whatever_a_runner_says_it_raised_it_failed(said: Any) -> None:
    result = verdict.raised("correctness", read_error(said), LIMITS)
    assert result.outcome == pb.EvalResult.RUNTIME_ERROR
    assert received(result) == result


@pytest.mark.parametrize("library", ["CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out of memory"])
def test_a_library_without_device_memory_has_lacked_memory_although_torch_has_no_name_for_it(library: str) -> None:
    """Neighbours may have filled the device: then the candidate is judged again, alone."""
    error = ErrorDescription("RuntimeError", ("RuntimeError",), f"CUDA error: {library}", "")
    result = verdict.raised("compile", error, LIMITS)
    assert (result.outcome, result.out_of_memory.memory) == (pb.EvalResult.OUT_OF_MEMORY, "device")


def test_a_tensor_that_the_host_has_no_memory_for_has_lacked_memory_although_torch_has_no_name_for_it() -> None:
    message = (
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."
    )
    result = verdict.raised("load", ErrorDescription("RuntimeError", ("RuntimeError",), message, ""), LIMITS)
    assert (result.outcome, result.out_of_memory.memory) == (pb.EvalResult.OUT_OF_MEMORY, "host")
    assert result.out_of_memory.limit_bytes == LIMITS.host


def test_what_only_looks_like_a_name_of_a_base_is_none() -> None:
    assert read_error({"bases": "MemoryError"}).bases == ()
    assert read_error({"bases": ["MemoryError", 3]}).bases == ("MemoryError", "3")


@pytest.mark.parametrize(
    ("signal", "status", "evidence"),
    [
        (11, None, pb.CrashEvidence(kind="signal", stage="timing", signal=11)),
        (0, 0, pb.CrashEvidence(kind="exit", stage="timing", exit_code=0)),
    ],
)
def test_a_status_of_zero_is_a_status(signal: int, status: int | None, evidence: pb.CrashEvidence) -> None:
    report = ExitReport(signal, status, killed=False, out_of_memory=False, peak_memory_bytes=0, logs="")
    found = received(verdict.ended("timing", report, 1 << 30)).runtime_error
    assert found == evidence
    assert found.HasField("exit_code") is (evidence.kind == "exit")


def test_a_result_always_has_what_every_result_has() -> None:
    found = received(verdict.infrastructure("DEVICE_BUSY", "busy", retryable=True))
    for field in ("compiled", "correct", "speedup"):
        assert found.HasField(field)
    assert not found.HasField("coverage")
    assert (found.message, found.speedup) == ("DEVICE_BUSY: busy", 0.0)


def test_findings_of_the_lane_are_added_only_where_a_result_has_none() -> None:
    own, others = (verdict.finding(name, pb.Finding.SEVERITY_INFO, "seen") for name in ("S30", "D07"))
    plain = verdict.complete(verdict.late("load", 1.0, 0.0), [], [others], None, "")
    assert [finding.id for finding in plain.findings] == ["D07"]
    incorrect = verdict.incorrect(Mismatch("output", "values", "wrong"), 0, pb.CorrectnessReport(), [own])
    assert [finding.id for finding in verdict.complete(incorrect, [], [others], None, "").findings] == ["S30"]


def test_a_profile_gives_its_coverage_to_the_result() -> None:
    record = Record(passed=3, trials=3)
    assert not verdict.correct(record.report(), 3, []).HasField("coverage")
    profile = pb.KernelProfile(device_time_coverage=0.0, calls=5)
    found = received(verdict.correct(record.report(), 3, [], profile=profile))
    assert found.HasField("coverage")
    assert (found.coverage, found.profile.calls) == (0.0, 5)


def test_stages_are_told_by_name_and_have_a_time_and_a_duration() -> None:
    told: list[pb.Stage.ValueType] = []
    stages = Stages(told.append)
    for stage in (pb.STAGE_PREPARING, pb.STAGE_PREPARING, pb.STAGE_LOADING):
        stages.enter(stage)
    stages.close()
    assert told == [span.stage for span in stages.spans] == [pb.STAGE_PREPARING, pb.STAGE_LOADING]
    assert frames.stage("a", told[1]) == {"op": "stage", "attempt": "a", "stage": "STAGE_LOADING"}
    first, second = stages.spans
    assert first.start_time.ToMicroseconds() + first.duration.ToMicroseconds() == pytest.approx(
        second.start_time.ToMicroseconds(), abs=100_000
    )
    assert 0 <= second.duration.ToSeconds() < 10


def test_a_frame_names_its_attempt_and_holds_the_bytes_of_the_result() -> None:
    sent = verdict.late("compile", 60.0, 0.0)
    said = wire.decode(wire.encode(frames.result("attempt", sent))[4:])
    assert (said["op"], said["attempt"]) == ("result", "attempt")
    assert base64.b64decode(said["result"], validate=True) == sent.SerializeToString()
