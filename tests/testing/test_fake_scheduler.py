"""The fake scheduler, used as a trainer's test uses it: verdicts, rewards and faults, with and without asyncio."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import grpc
import pytest

from kerneldyno.client import (
    AsyncClient,
    CallFailedError,
    Client,
    EvalRequest,
    EvalResult,
    EvaluationNotFoundError,
    InvalidRequestError,
    NoRewardError,
    QueueFullError,
    Turn,
    turn,
)
from kerneldyno.testing import FakeScheduler, results


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler() as scheduler:
        yield scheduler


@pytest.fixture
def client(scheduler: FakeScheduler) -> Iterator[Client]:
    with Client(scheduler.address) as client:
        yield client


def request(id: str, code: str = "candidate") -> EvalRequest:
    return EvalRequest(id=id, reference_code="reference", kernel_code=code)


def one_turn(sample: int, code: str = "candidate", **fields: str) -> Turn:
    return turn("problem", sample, 0, reference_code="reference", kernel_code=code, **fields)


def fenced(script: str) -> str:
    return f"Here it is.\n```python\n# {script}\nclass ModelNew:\n    pass\n```\n"


class TestVerdicts:
    def test_a_candidate_says_what_becomes_of_it(self, scheduler: FakeScheduler, client: Client) -> None:
        codes = {"a": "# speedup=2.5", "b": "# outcome=INCORRECT", "c": "anything"}
        judged = {result.id: result for result in client.evaluate(request(*item) for item in codes.items())}
        assert (judged["a"].speedup, judged["c"].speedup) == (2.5, 1.0)
        assert judged["b"].outcome == EvalResult.INCORRECT
        assert scheduler.runs == ["a", "b", "c"]
        assert {id for message in scheduler.messages for id in [one.id for one in message.requests]} == set(codes)

    def test_a_test_judges_by_a_function(self, scheduler: FakeScheduler, client: Client) -> None:
        scheduler.judge = lambda request: results.timeout() if "while" in request.kernel_code else results.correct(3)
        outcomes = {one.id: one.outcome for one in client.evaluate([request("a", "while True"), request("b")])}
        assert outcomes == {"a": EvalResult.TIMEOUT, "b": EvalResult.CORRECT}

    async def test_a_judge_may_wait(self) -> None:
        asked = asyncio.Event()

        async def judge(request: EvalRequest) -> EvalResult:
            asked.set()
            await asyncio.sleep(1e6)
            return results.correct()

        async with FakeScheduler(judge) as scheduler, AsyncClient(scheduler.address) as client:
            result = asyncio.create_task(client.evaluate_once(request("a"), timeout=60))
            await asked.wait()
            await client.cancel("a")
            assert (await result).infrastructure_error.cause == "CANCELLED"
        assert scheduler.cancelled == ["a"]

    def test_a_malformed_request_is_invalid(self, scheduler: FakeScheduler, client: Client) -> None:
        (result,) = client.evaluate([EvalRequest(id="a", kernel_code="candidate")])
        assert result.outcome == EvalResult.INVALID
        assert [violation.field for violation in result.invalid.violations] == ["reference_code"]
        with pytest.raises(InvalidRequestError):
            client.evaluate_once(EvalRequest(id="b", kernel_code="candidate"))
        assert scheduler.runs == []

    def test_a_judge_that_fails_is_told(self, scheduler: FakeScheduler, client: Client) -> None:
        def judge(request: EvalRequest) -> EvalResult:
            raise LookupError("a mistake of the test")

        scheduler.judge = judge
        with pytest.raises(CallFailedError, match="a mistake of the test"):
            list(client.evaluate([request("a")]))
        with pytest.raises(CallFailedError, match="a mistake of the test"):
            list(client.rewards([one_turn(0)]))


class TestRewards:
    def test_rewards_are_those_of_the_preset(self, scheduler: FakeScheduler, client: Client) -> None:
        turns = [
            turn("p", sample, 0, reference_code="reference", response_text=text)
            for sample, text in enumerate([fenced("speedup=2"), fenced("outcome=COMPILE_ERROR"), "I do not know."])
        ]
        answers = {answer.sample: answer for answer in client.rewards(turns, "kevin")}
        assert [answers[sample].reward for sample in range(3)] == [2.3, 0.0, 0.0]
        assert answers[0].extraction.kernel_code.startswith("# speedup=2")
        assert answers[0].feedback.startswith("CORRECT: 2.00x")
        assert answers[2].result.outcome == EvalResult.INVALID
        assert [one.sample for one in scheduler.turns] == [0, 1, 2]

    def test_coverage_is_measured_if_the_reward_uses_it(self, client: Client) -> None:
        code = "# speedup=1.5 coverage=0.5"
        (answer,) = client.rewards([one_turn(0, code)], "drkernel")
        assert answer.parts.paid_coverage == 0.5
        (answer,) = client.rewards([one_turn(1, code)], "kevin")
        assert not answer.result.HasField("profile")

    def test_an_anomalous_speedup_is_measured_again(self, scheduler: FakeScheduler, client: Client) -> None:
        (answer,) = client.rewards([one_turn(0, "speedup=90 again.speedup=2")], "kevin")
        assert (answer.result.speedup, answer.remeasured.speedup, answer.reward) == (90, 2, 2.3)
        assert [id.endswith("~again") for id in scheduler.runs] == [False, True]

    def test_infrastructure_errors_have_no_reward_and_are_tried_again(
        self, scheduler: FakeScheduler, client: Client
    ) -> None:
        verdicts = iter([results.infrastructure_error(), results.correct(2)])
        scheduler.judge = lambda request: next(verdicts)
        assert [answer.reward for answer in client.rewards([one_turn(0)], "kevin")] == [2.3]
        scheduler.judge = lambda request: results.infrastructure_error("NODE_LOST")
        with pytest.raises(NoRewardError, match="NODE_LOST"):
            list(client.rewards([one_turn(1)], "kevin"))
        assert len(scheduler.turns) == 5, "one turn twice, the other one three times"

    def test_an_unknown_preset_is_refused(self, client: Client) -> None:
        with pytest.raises(InvalidRequestError, match=r"reward\.preset"):
            list(client.rewards([one_turn(0)], "nothing"))


class TestFaults:
    @pytest.mark.parametrize("forget", [False, True])
    def test_a_restart_loses_nothing(self, scheduler: FakeScheduler, client: Client, forget: bool) -> None:
        turns = iter([one_turn(0, "sleep=0.3"), one_turn(1)])
        answers = client.rewards(turns, "kevin")
        assert next(answers).sample == 1
        scheduler.run(scheduler.restart(forget=forget))
        assert [answer.reward for answer in answers] == [1.3]
        assert len(scheduler.runs) == (3 if forget else 2)

    def test_streams_break_on_command(self, scheduler: FakeScheduler, client: Client) -> None:
        found = client.evaluate([request("a"), request("b", "sleep=0.3")])
        assert next(found).id == "a"
        scheduler.run(scheduler.break_streams())
        assert [result.id for result in found] == ["b"]
        assert (scheduler.runs, scheduler.attached) == (["a", "b"], ["b"])

    def test_streams_break_after_a_number_of_results(self, scheduler: FakeScheduler, client: Client) -> None:
        scheduler.breaks_after = 1
        assert sorted(one.sample for one in client.rewards([one_turn(sample) for sample in range(3)])) == [0, 1, 2]
        assert (len(scheduler.opened), len(scheduler.runs)) == (3, 3)

    def test_a_full_queue_is_waited_for(self, scheduler: FakeScheduler, client: Client) -> None:
        scheduler.refusals.extend(QueueFullError("full", retry_seconds=0.05) for _ in range(2))
        assert [answer.sample for answer in client.rewards([one_turn(0)])] == [0]
        assert len(scheduler.opened) == 3
        scheduler.refusals.append(QueueFullError("full"))
        with pytest.raises(QueueFullError):
            client.evaluate_once(request("once"))

    def test_every_call_may_be_refused(self, scheduler: FakeScheduler, client: Client) -> None:
        scheduler.refuse = grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(CallFailedError, match="PERMISSION_DENIED"):
            list(client.evaluate([request("a")]))
        scheduler.refuse = None
        assert [result.id for result in client.evaluate([request("a")])] == ["a"]

    def test_everything_may_take_longer(self, scheduler: FakeScheduler, client: Client) -> None:
        scheduler.delay_seconds = 1e6
        late = client.evaluate([request("a")], timeout=0.2)
        assert [result.infrastructure_error.cause for result in late] == ["DEADLINE_EXCEEDED"]

    def test_what_is_forgotten_is_not_found(self, scheduler: FakeScheduler, client: Client) -> None:
        client.evaluate_once(request("a"))
        assert client.get("a").result.outcome == EvalResult.CORRECT
        assert [evaluation.id for evaluation in client.list()] == ["a"]
        scheduler.run(scheduler.restart(forget=True))
        with pytest.raises(EvaluationNotFoundError):
            client.get("a")


def test_torch_is_not_imported() -> None:
    program = "import sys, kerneldyno.testing; print([name for name in sys.modules if name in ('torch', 'numpy')])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_a_start_that_fails_in_a_with_block_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: FakeScheduler) -> None:
        raise OSError("no port is free")

    monkeypatch.setattr(FakeScheduler, "start", refuse)
    before = threading.active_count()
    with pytest.raises(OSError, match="no port is free"):
        FakeScheduler().__enter__()
    assert threading.active_count() == before
