"""Two speedups of one run: each request says which one counts, also to an evaluator directly, and so may a reward."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from kerneldyno.client import Client, LocalServices, RewardSpec, turn
from kerneldyno.rpc import channel, errors
from kerneldyno.v1 import evaluator_service_pb2 as pb
from kerneldyno.v1 import evaluator_service_pb2_grpc as pb_grpc
from kerneldyno.v1.evaluation_pb2 import (
    SPEEDUP_KIND_DEVICE,
    SPEEDUP_KIND_END_TO_END,
    EvalRequest,
    EvalResult,
    TimingStats,
)
from tests.e2e.e2e_harness import REFERENCE, candidate, outcome, request

pytestmark = pytest.mark.alone

#: A candidate that takes milliseconds, so that its times are not only noise.
SLOW = candidate("time.sleep(0.002)")
TIMED: dict[str, Any] = {
    "reference_code": REFERENCE,
    "kernel_code": SLOW,
    "backend": "torch",
    "num_correct_trials": 1,
    "num_perf_trials": 5,
    "stress_inputs": False,
    "run_performance": True,
    "timing_precision": 0.5,
}


def timed(id: str, **changes: Any) -> EvalRequest:
    return request(id, **{**TIMED, **changes})


def check_both_times(result: EvalResult) -> None:
    """Check that both times are there, with intervals, in one regime, and with the effort of measuring them."""
    assert outcome(result) == "CORRECT"
    assert 0 < result.speedup_interval.low <= result.speedup <= result.speedup_interval.high
    ended = result.end_to_end_speedup_interval
    assert 0 < ended.low <= result.end_to_end_speedup <= ended.high
    assert result.candidate_end_to_end.median_seconds > 0.002
    both = (result.candidate_timing, result.reference_timing, result.candidate_end_to_end, result.reference_end_to_end)
    assert len({timing.regime for timing in both}) == 1
    assert result.candidate_timing.regime != TimingStats.REGIME_UNSPECIFIED
    assert result.timing_effort.lease_seconds > 0
    assert result.timing_effort.candidate_calls >= result.timing_effort.rounds > 0


def test_each_request_says_which_speedup_counts_and_one_run_answers_all(services: LocalServices) -> None:
    kinds = {"kinds/a": "end-to-end", "kinds/b": "device", "kinds/c": "end-to-end", "kinds/d": None}
    with Client(services.address) as client:
        first = {one.id: one for one in client.evaluate([timed(id, speedup_kind=kind) for id, kind in kinds.items()])}
        later = client.evaluate_once(timed("kinds/e", speedup_kind="end-to-end"))
        other = client.evaluate_once(timed("kinds/f", timing_precision=0.6))
        untimed = client.evaluate_once(timed("kinds/g", run_performance=False, speedup_kind="end-to-end"))
    for id, kind in kinds.items():
        check_both_times(first[id])
        expected = SPEEDUP_KIND_END_TO_END if kind == "end-to-end" else SPEEDUP_KIND_DEVICE
        assert first[id].speedup_kind == expected
    speedups = {(one.digest, one.speedup, one.end_to_end_speedup) for one in (*first.values(), later)}
    assert len(speedups) == 1, "one run answered"
    assert (later.cached, later.speedup_kind) == (True, SPEEDUP_KIND_END_TO_END)
    assert other.digest != later.digest
    assert not other.cached
    assert (outcome(untimed), untimed.speedup_kind, untimed.HasField("timing_effort")) == ("CORRECT", 0, False)


@pytest.mark.parametrize("kind", [SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END, 0])
async def test_an_evaluator_that_is_called_directly_says_it_as_well(services: LocalServices, kind: int) -> None:
    one = timed("direct", kernel_code=SLOW + f"\n# direct {kind}\n")
    one.speedup_kind = kind  # type: ignore[assignment]
    message = pb.EvaluatorServiceEvaluateRequest(attempt_token=f"kinds {kind}", request=one)
    async with grpc.aio.insecure_channel(services.evaluator["grpc"], options=channel.client_options()) as connection:
        stub: Any = pb_grpc.EvaluatorServiceStub(connection)
        events = [answer.event async for answer in stub.Evaluate(message, timeout=60)]
    result = events[-1].result
    check_both_times(result)
    assert result.speedup_kind == (kind or SPEEDUP_KIND_DEVICE)


@pytest.mark.parametrize("field", ["timing_precision", "speedup_kind"])
async def test_an_evaluator_refuses_what_it_does_not_know(services: LocalServices, field: str) -> None:
    one = timed("direct")
    setattr(one, field, 9)
    message = pb.EvaluatorServiceEvaluateRequest(attempt_token=f"bad {field}", request=one)
    async with grpc.aio.insecure_channel(services.evaluator["grpc"], options=channel.client_options()) as connection:
        stub: Any = pb_grpc.EvaluatorServiceStub(connection)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Evaluate(message, timeout=60).read()
    error = errors.from_rpc_error(refused.value)
    assert isinstance(error, errors.InvalidRequestError)
    assert [violation.field for violation in error.violations] == [field]


def test_a_reward_pays_the_speedup_that_it_names(services: LocalServices) -> None:
    response = f"```python\n{SLOW}\n```"
    fields = {name: value for name, value in TIMED.items() if name not in ("kernel_code", "reference_code")}
    one = turn("kinds", 0, 0, reference_code=REFERENCE, response_text=response, **fields)
    spec = RewardSpec(preset="kevin", speedup_kind=SPEEDUP_KIND_END_TO_END)
    with Client(services.address) as client:
        (answer,) = client.rewards([one], spec)
    check_both_times(answer.result)
    assert answer.result.speedup_kind == SPEEDUP_KIND_END_TO_END
    assert answer.parts.paid_speedup == answer.result.end_to_end_speedup
    assert answer.reward == pytest.approx(0.3 + answer.result.end_to_end_speedup)
    assert answer.feedback.startswith("CORRECT: ")
