"""Tests of speedups that are too good: a second evaluation measures them before they are paid. Also cancelled turns."""

from __future__ import annotations

import math

import pytest

from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END, EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec
from kerneldyno.v1.scheduler_service_pb2 import CancelEvaluationsRequest, ListEvaluationsRequest
from tests.scheduler.rewards_harness import PLAIN, Trainer, outcome, paid, turn
from tests.scheduler.scheduler_harness import connect, sample, scheduler
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("script", "reward", "speedups"),
    [
        ("speedup=2.5", 2.8, (2.5, None)),
        ("speedup=9 again.speedup=2", 2.3, (9, 2)),
        ("speedup=9 again.speedup=9", 9.3, (9, 9)),
        ("speedup=9 again.speedup=12", 9.3, (9, 12)),
        ("speedup=9 again.outcome=INCORRECT", -1.0, (9, 0)),
        ("speedup=9 again.outcome=REJECTED", -2.0, (9, 0)),
        ("speedup=9 again.outcome=INFRASTRUCTURE_ERROR retryable=no", None, (9, 0)),
    ],
)
async def test_the_smaller_of_two_measurements_is_paid_and_a_failed_second_counts_alone(
    script: str, reward: float | None, speedups: tuple[float, float | None]
) -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(
            turn("a", script), reward=RewardSpec(preset="kevin", incorrect_reward=-1, rejected_reward=-2)
        )
        answer = (await trainer.finish())["a"]
        again = answer.remeasured.speedup if answer.HasField("remeasured") else None
        assert (paid(answer), (answer.result.speedup, again)) == (reward, speedups)
        assert (answer.id, outcome(answer), answer.result.id) == ("a", "CORRECT", "a")
        assert len(fake.started) == (1 if again is None else 2)
        assert sample(app, "remeasurements_total") == (0 if again is None else 1)


async def test_a_spec_may_pay_whatever_was_measured() -> None:
    async with scheduler() as (app, _), node(app.address, "n1"), connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("a", "speedup=90"), reward=RewardSpec(preset="kevin", remeasure_above=math.inf))
        answer = (await trainer.finish())["a"]
        assert (paid(answer), answer.HasField("remeasured")) == (90.3, False)


@pytest.mark.parametrize(
    ("script", "kind", "reward", "again"),
    [
        ("speedup=2 end_to_end=9 again.speedup=1 again.end_to_end=4", SPEEDUP_KIND_END_TO_END, 4.3, True),
        ("speedup=2 end_to_end=9 again.speedup=1 again.end_to_end=4", SPEEDUP_KIND_DEVICE, 2.3, False),
        ("speedup=9 end_to_end=2 again.speedup=4 again.end_to_end=1", SPEEDUP_KIND_END_TO_END, 2.3, False),
        ("speedup=9 end_to_end=2 again.speedup=4 again.end_to_end=1", SPEEDUP_KIND_DEVICE, 4.3, True),
        ("speedup=2 end_to_end=9 again.end_to_end=none", SPEEDUP_KIND_END_TO_END, None, True),
        ("speedup=9 end_to_end=none", SPEEDUP_KIND_END_TO_END, None, False),
        ("speedup=9 queued=0.0004", SPEEDUP_KIND_DEVICE, 0.3 + 1.8, False),
    ],
)
@pytest.mark.parametrize("who", ["reward", "request"])
async def test_the_speedup_that_is_paid_is_the_one_that_is_measured_again(
    script: str, kind: int, reward: float | None, again: bool, who: str
) -> None:
    """Either the spec or the request says which speedup counts. The last case pays 9x as 1.8x, for finding T31."""
    spec = RewardSpec(preset="kevin", speedup_kind=kind if who == "reward" else 0)
    fields = {"speedup_kind": kind} if who == "request" else {}
    async with scheduler() as (app, _), node(app.address, "n1"), connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("a", script, **fields), reward=spec)
        answer = (await trainer.finish())["a"]
        assert paid(answer) == (None if reward is None else pytest.approx(reward))
        assert answer.HasField("remeasured") == again
        assert answer.result.speedup_kind == kind
        assert not again or answer.remeasured.speedup_kind == kind
        assert ("not timed end to end" in answer.feedback) == (reward is None)


async def test_no_other_run_stands_in_for_a_second_measurement() -> None:
    """Turns with the same candidate share the first run but never the second. The second run answers no other turn."""
    alike = {"kernel_code": "speedup=9 again.speedup=2"}
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=4) as fake, connect(app) as peer:
        for names in (("a", "b"), ("c",)):
            trainer = Trainer(peer)
            await trainer.send(*(turn(name, **alike) for name in names))
            answers = await trainer.finish()
            assert {name: paid(one) for name, one in answers.items()} == dict.fromkeys(names, 2.3)
            for answer in answers.values():
                assert not answer.remeasured.cached
                assert not answer.remeasured.merged
        assert answers["c"].result.cached, "with the first measurement, which it doubted for itself"
        assert len(fake.started) == 1 + 3
        listed = await stub.ListEvaluations(ListEvaluationsRequest(labels={"again": "true"}))
        assert sorted(one.id for one in listed.evaluations) == ["a~again", "b~again", "c~again"]


async def test_a_turn_that_comes_again_while_it_is_measured_again_waits_for_the_same_runs() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        one = turn("a", "speedup=9 again.sleep=0.8 again.speedup=2")
        trainer = Trainer(peer)
        await trainer.send(one)
        await eventually(lambda: fake.started == ["a", "a"])
        trainer.call.cancel()
        again = Trainer(peer)
        await again.send(one)
        assert paid((await again.finish())["a"]) == 2.3
        later = Trainer(peer)
        await later.send(one)
        assert paid((await later.finish())["a"]) == 2.3
        assert fake.started == ["a", "a"]


async def test_second_measurements_do_not_wait_behind_a_message_that_waits_for_room() -> None:
    async with scheduler(max_queued=4) as (app, _), node(app.address, "n1", lanes=1) as fake, connect(app) as peer:
        trainer = Trainer(peer)
        first = turn("first", "speedup=9 again.speedup=2")
        await trainer.send(first, *(turn(f"t{i}", "sleep=0.02") for i in range(100)))
        await trainer.until(lambda: "first" in trainer.answers)
        assert len(fake.started) < 60, "it went before most of what the client had sent by then"
        assert len(await trainer.finish()) == 101


# Cancellation


async def test_a_cancelled_turn_has_no_reward_and_stops_wherever_it_is() -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=1) as fake, connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(*(turn(name, "sleep=60") for name in ("runs", "waits", "queued", "kept")))
        await eventually(lambda: len(fake.started) == 2)
        await trainer.send(cancel=("runs", "waits", "queued", "never heard of"))
        await trainer.until(lambda: len(trainer.order) == 3)
        for name in ("runs", "waits", "queued"):
            answer = trainer.answers[name]
            assert (outcome(answer), paid(answer)) == ("INFRASTRUCTURE_ERROR", None)
            assert answer.result.infrastructure_error.cause == "CANCELLED"
        await eventually(lambda: fake.started[-1] == "kept")
        await trainer.send(cancel=("kept",))
        assert len(await trainer.finish()) == 4


async def test_a_turn_cancelled_while_it_is_measured_again_stops_that_too() -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=1) as fake, connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("a", "speedup=9 again.sleep=60"), turn("b", "speedup=1"))
        await eventually(lambda: fake.started.count("a") == 2)
        await trainer.send(cancel=("a",))
        answers = await trainer.finish()
        assert (outcome(answers["a"]), paid(answers["a"])) == ("CORRECT", None)
        assert answers["a"].remeasured.infrastructure_error.cause == "CANCELLED"
        assert paid(answers["b"]) == 1.3
        await eventually(lambda: fake.cancelled == ["a"])


async def test_a_turn_that_an_earlier_stream_left_behind_is_cancelled_by_its_id() -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=2) as fake, connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("a", "sleep=60"), turn("b", "speedup=9 again.sleep=60"))
        await eventually(lambda: sorted(fake.started) == ["a", "b", "b"])
        trainer.call.cancel()
        again = Trainer(peer)
        await again.send(cancel=("a", "b"))
        assert await again.finish() == {}
        await eventually(lambda: sorted(fake.cancelled) == ["a", "b"])


async def test_cancelling_by_the_unary_call_reaches_both_measurements() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1", lanes=2) as fake, connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("a", "sleep=60"), turn("b", "speedup=9 again.sleep=60"), reward=PLAIN)
        await eventually(lambda: sorted(fake.started) == ["a", "b", "b"])
        cancelled = await stub.CancelEvaluations(CancelEvaluationsRequest(client_id="t", all=True))
        assert cancelled.cancelled == 2
        answers = await trainer.finish()
        assert {name: paid(one) for name, one in answers.items()} == {"a": None, "b": None}
        assert answers["b"].remeasured.outcome == EvalResult.INFRASTRUCTURE_ERROR
