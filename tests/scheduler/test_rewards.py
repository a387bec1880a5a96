"""Tests of StreamRewards over real sockets: rewards, extraction, bad turns and specs, ids, labels, profiling, order."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import grpc
import pytest

from kerneldyno.rpc import errors
from kerneldyno.rpc.turns import MAX_TURN_LABELS, turn_id
from kerneldyno.scheduler.core.model import Key
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1.evaluation_pb2 import (
    PROFILE_LEVEL_KERNELS,
    PROFILE_LEVEL_NONE,
    SPEEDUP_KIND_DEVICE,
    SPEEDUP_KIND_END_TO_END,
    EvalRequest,
)
from kerneldyno.v1.reward_service_pb2 import Extraction, RewardSpec, SpeedupTier, StreamRewardsRequest, Turn
from kerneldyno.v1.scheduler_service_pb2 import ListEvaluationsRequest
from tests.scheduler.rewards_harness import PLAIN, Trainer, fenced, fields, outcome, paid, turn
from tests.scheduler.scheduler_harness import connect, failure, sample, scheduler
from tests.scheduler.test_scheduler_process import process
from tests.waiting import eventually

STEPS = RewardSpec(
    preset="kevin",
    correctness_weight=10,
    speedup_weight=1,
    incorrect_reward=-1,
    failure_reward=-2,
    rejected_reward=-3,
)
FAILURES = ("COMPILE_ERROR", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY", "INVALID")


async def test_every_outcome_has_its_reward_and_infrastructure_has_none() -> None:
    async with scheduler() as (app, _), node(app.address, "n1"), connect(app) as peer:
        trainer = Trainer(peer)
        unpaid = ("REFERENCE_ERROR", "INFRASTRUCTURE_ERROR", "PROBLEM_TOO_LARGE")
        rest = ("INCORRECT", "REJECTED", *FAILURES, *unpaid)
        await trainer.send(
            turn("CORRECT", "speedup=1.5"), *(turn(name, f"outcome={name} retryable=no") for name in rest), reward=STEPS
        )
        answers = await trainer.finish()
        assert {name: outcome(answer) for name, answer in answers.items()} == {
            name: name for name in ("CORRECT", *rest)
        }
        expected = {"CORRECT": 11.5, "INCORRECT": -1.0, "REJECTED": -3.0} | dict.fromkeys(FAILURES, -2.0)
        assert {name: paid(answer) for name, answer in answers.items()} == expected | dict.fromkeys(unpaid)
        assert not answers["INFRASTRUCTURE_ERROR"].HasField("parts")
        best = answers["CORRECT"]
        assert (best.parts.correctness, best.parts.speedup, best.parts.paid_speedup) == (10, 1.5, 1.5)
        assert (best.group, best.sample, best.turn_index) == ("group CORRECT", 3, 0)
        assert all(answer.feedback for answer in answers.values())
        assert sample(app, "turns_total", outcome="CORRECT") == 1
        assert sample(app, "turns_without_reward_total") == 3
        assert sample(app, "reward_count") == 8


async def test_the_candidate_is_taken_from_the_response_and_a_response_without_one_is_answered_at_once() -> None:
    async with scheduler() as (app, _), node(app.address, "n1", lanes=1) as fake, connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("slow", "sleep=30"))
        await eventually(lambda: fake.started == ["slow"])
        await trainer.send(
            turn("talk", response="I would rather not."),
            turn("cut", response="```python\nclass ModelNew:"),
            turn("right", response=fenced("speedup=2")),
            turn("large", response="I think. " * 20_000 + fenced("speedup=2")),
            reward=STEPS,
        )
        await trainer.until(lambda: len(trainer.order) == 2)
        for name in ("talk", "cut"):
            answer = trainer.answers[name]
            assert (outcome(answer), paid(answer), fields(answer)) == ("INVALID", -2.0, ["response_text"])
            assert (answer.extraction.method, answer.extraction.kernel_code) == (Extraction.METHOD_UNSPECIFIED, "")
            assert answer.extraction.note in answer.result.invalid.violations[0].description
            assert "fenced" in answer.feedback, "it says what to write"
            assert app.core.requests.get(Key("t", name)) is None, "it was never queued"
        await trainer.send(cancel=("slow",))
        answers = await trainer.finish()
        right, large = answers["right"], answers["large"]
        assert (outcome(right), paid(right)) == ("CORRECT", 12.0)
        assert right.extraction.method == Extraction.METHOD_FENCED_ENTRY_POINT
        assert right.extraction.kernel_code.startswith("class ModelNew:")
        assert large.extraction == right.extraction
        assert sample(app, "extraction_failures_total") == 2


async def test_bad_turns_are_answered_one_by_one_and_a_policy_does_not_pay_for_its_trainer() -> None:
    async with scheduler() as (app, _), node(app.address, "n1"), connect(app) as peer:
        await eventually(lambda: bool(app.core.fleet.nodes))
        named = {f"label {i}": "x" for i in range(MAX_TURN_LABELS + 1)}
        bad = {
            ("kernel_code",): turn("neither", kernel_code=""),
            ("turn",): Turn(request=turn("both").request, response_text="x"),
            ("response_text", "labels"): Turn(
                request=turn("much", kernel_code="", labels=named).request, response_text="x" * (1 << 20) + "x"
            ),
            ("group", "sample", "turn_index"): Turn(
                group="g" * 151, sample=-1, turn_index=-1, request=turn("negative").request
            ),
            ("group",): Turn(group="a\nb", request=turn("lines").request),
            ("id",): Turn(request=turn("i" * 195).request),
            ("id", "kernel_code"): turn("x~again", kernel_code=""),
            ("reference_code",): turn("reference", reference_code=""),
            ("backend",): turn("backend", backend="fortran"),
        }
        trainer = Trainer(peer)
        await trainer.send(*bad.values(), turn("good", "speedup=1"), reward=STEPS)
        answers = await trainer.finish()
        assert {tuple(fields(answer)) for answer in answers.values()} == {*bad, ()}
        for expected, one in bad.items():
            answer = answers[one.request.id]
            to_blame = set(expected) <= {"kernel_code", "response_text"}
            assert (tuple(fields(answer)), outcome(answer)) == (expected, "INVALID")
            assert paid(answer) == (-2.0 if to_blame else None), expected
            assert (answer.group, answer.sample, answer.turn_index) == (one.group, one.sample, one.turn_index)
        assert paid(answers["good"]) == 11.0
        assert answers["neither"].feedback.startswith("INVALID: your answer is empty. Give the whole program")
        assert "response_text" in answers["neither"].result.message, "its caller is told in the API's words"
        assert answers["backend"].feedback.startswith("INVALID: backend: ")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (StreamRewardsRequest(turns=[turn("a")]), "client_id"),
        (StreamRewardsRequest(client_id="other", turns=[turn("a")]), "client_id"),
        (StreamRewardsRequest(client_id="t", reward=RewardSpec(preset="generous")), "reward.preset"),
        (StreamRewardsRequest(client_id="t", reward=RewardSpec(speedup_clip=math.nan)), "reward.speedup_clip"),
        (StreamRewardsRequest(client_id="t", reward=RewardSpec(speedup_kind=7)), "reward.speedup_kind"),
        (
            StreamRewardsRequest(client_id="t", reward=RewardSpec(tiers=[SpeedupTier(min_speedup=-1)])),
            "reward.tiers[0].min_speedup",
        ),
        (StreamRewardsRequest(client_id="t", turns=[Turn()] * 1001), "turns"),
    ],
)
async def test_what_no_turn_is_to_blame_for_ends_the_stream(message: StreamRewardsRequest, field: str) -> None:
    async with scheduler() as (app, _), connect(app) as peer:
        trainer = Trainer(peer)
        if message.client_id:
            await trainer.send()
        await trainer.call.write(message)
        error = await failure(trainer.finish())
        assert isinstance(error, errors.InvalidRequestError)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in error.violations] == [field]


async def test_a_spec_is_in_force_until_the_next_and_drkernel_before_the_first() -> None:
    async with scheduler() as (app, _), node(app.address, "n1"), connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("default", "speedup=2"), reward=None)
        await trainer.send(turn("kevin", "speedup=2"), reward=PLAIN)
        await trainer.send(turn("still", "speedup=2"), reward=None)
        await trainer.send(turn("steps", "speedup=2"), reward=STEPS)
        answers = await trainer.finish()
        assert {name: paid(one) for name, one in answers.items()} == {
            "default": 1.5,
            "kevin": 2.3,
            "still": 2.3,
            "steps": 12.0,
        }


async def test_the_spec_says_which_speedup_is_paid_and_else_the_turn_does() -> None:
    script = "speedup=2 end_to_end=3"
    device, ended = SPEEDUP_KIND_DEVICE, SPEEDUP_KIND_END_TO_END
    async with scheduler() as (app, stub), node(app.address, "n1"), connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(turn("neither", script), turn("turn", script, speedup_kind=ended))
        spec = RewardSpec(preset="kevin", speedup_kind=ended)
        await trainer.send(turn("spec", script), turn("both", script, speedup_kind=device), reward=spec)
        await trainer.send(turn("wrong", "outcome=INCORRECT", speedup_kind=ended), reward=spec)
        answers = await trainer.finish()
        expected = {"neither": (2.3, device), "turn": (3.3, ended), "spec": (3.3, ended), "both": (3.3, ended)}
        seen = {name: (paid(answers[name]), answers[name].result.speedup_kind) for name in expected}
        assert seen == expected
        assert (paid(answers["wrong"]), answers["wrong"].result.speedup_kind) == (0.0, 0)
        first = "3.00x the reference's speed (95% interval 2.70 to 3.30); end to end 1.33 ms"
        assert answers["spec"].feedback.startswith(f"CORRECT: {first}")
        listed = await stub.ListEvaluations(ListEvaluationsRequest())
        own = {one.id: one.result.speedup_kind for one in listed.evaluations}
        assert own == {"neither": device, "turn": ended, "spec": device, "both": device, "wrong": 0}, (
            "as they were asked"
        )


async def test_a_turn_without_an_id_is_named_by_what_it_says_and_labelled() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        request = EvalRequest(reference_code="ref", kernel_code="id=a speedup=1", labels={"step": "7"})
        one = Turn(group="p/1", sample=2, turn_index=1, request=request)
        other = Turn(group="p/1", sample=2, turn_index=1, request=EvalRequest(reference_code="r", kernel_code="id=b"))
        for _ in range(2):
            trainer = Trainer(peer)
            await trainer.send(one, other)
            answers = await trainer.finish()
            assert set(answers) == {turn_id(one), turn_id(other)}
            assert all(id.startswith("p/1/2/1/") and len(id) == len("p/1/2/1/") + 16 for id in answers)
            labels = answers[turn_id(one)].result.labels
            assert dict(labels) == {"step": "7", "group": "p/1", "sample": "2", "turn": "1"}
        assert sorted(fake.started) == ["a", "b"], "the second time they were known"


async def test_as_many_labels_as_a_turn_may_have_leave_room_for_those_that_are_added() -> None:
    async with scheduler() as (app, _), node(app.address, "n1"), connect(app) as peer:
        trainer = Trainer(peer)
        labels = {f"label {i}": "x" for i in range(MAX_TURN_LABELS)}
        await trainer.send(turn("a", "speedup=9 again.speedup=2", labels=labels))
        answer = (await trainer.finish())["a"]
        assert len(answer.result.labels) == MAX_TURN_LABELS + 3
        assert answer.remeasured.labels["again"] == "true"


async def test_the_same_turn_twice_is_one_and_the_same_id_for_another_is_refused() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        trainer = Trainer(peer)
        other = turn("a", "outcome=INCORRECT", index=5)
        await trainer.send(turn("a", "sleep=0.3 speedup=1"), turn("a", "sleep=0.3 speedup=1"), other)
        await trainer.finish()
        refused, answered = trainer.order
        assert (outcome(answered), answered.turn_index, fake.started) == ("CORRECT", 0, ["a"])
        assert (outcome(refused), refused.turn_index, fields(refused)) == ("INVALID", 5, ["id"])

        later = Trainer(peer)
        await later.send(other)
        assert fields((await later.finish())["a"]) == ["id"]


async def test_equal_turns_run_once_and_each_has_its_reward() -> None:
    async with scheduler() as (app, _), node(app.address, "n1") as fake, connect(app) as peer:
        trainer = Trainer(peer)
        alike = {"kernel_code": "sleep=0.3 speedup=2"}
        await trainer.send(*(turn(f"t{i}", **alike) for i in range(4)))
        answers = await trainer.finish()
        assert [paid(answer) for answer in answers.values()] == [2.3] * 4
        assert [answers[f"t{i}"].result.merged for i in range(4)] == [False, True, True, True]
        later = Trainer(peer)
        await later.send(turn("later", **alike))
        assert (await later.finish())["later"].result.cached
        assert len(fake.started) == 1


# Profiling


async def test_turns_are_profiled_where_coverage_is_paid_and_the_fleet_can() -> None:
    script = "speedup=1 coverage=0.5"
    async with scheduler() as (app, _), connect(app) as peer:
        trainer = Trainer(peer)
        await trainer.send(
            turn("asked", script),
            turn("declined", script, enable_profiling=False),
            turn("none", script, profile_level=PROFILE_LEVEL_NONE),
            reward=None,
        )
        await asyncio.sleep(0.5)
        assert app.core.clients.count == 0, "nobody knows yet whether there is anything that can profile"
        async with node(app.address, "n1", profiling=True):
            await trainer.send(turn("unpaid", script), turn("wanted", script, profile_level=PROFILE_LEVEL_KERNELS))
            answers = await trainer.finish()
        assert {name: one.result.HasField("profile") for name, one in answers.items()} == {
            "asked": True,
            "declined": False,
            "none": False,
            "unpaid": False,
            "wanted": True,
        }
        assert (paid(answers["asked"]), answers["asked"].parts.coverage) == (1.25, 0.25)
        assert (paid(answers["declined"]), answers["declined"].parts.coverage) == (1.0, 0.0)


async def test_a_fleet_that_cannot_profile_judges_all_the_same() -> None:
    async with (
        scheduler() as (app, _),
        node(app.address, "cpu"),
        node(app.address, "gpu", profiling=True, kind="cuda", backends=("cuda",)),
        connect(app) as peer,
    ):
        await eventually(lambda: len(app.core.fleet.nodes) == 2)
        trainer = Trainer(peer)
        script = "speedup=1 coverage=0.5"
        await trainer.send(turn("triton", script), turn("cuda", script, backend="cuda"), reward=None)
        answers = await trainer.finish()
        assert [outcome(one) for one in answers.values()] == ["CORRECT"] * 2
        assert not answers["triton"].result.HasField("profile"), "no node for this backend can"
        assert answers["cuda"].result.HasField("profile")


async def test_whether_a_turn_is_profiled_is_decided_once() -> None:
    """A turn that comes again must be the same request, even if the fleet can profile by then."""
    async with scheduler() as (app, _), connect(app) as peer:
        trainer = Trainer(peer)
        async with node(app.address, "old"):
            await trainer.send(turn("a", "sleep=30"), reward=None)
            await eventually(lambda: len(app.core.attempts) == 1)
            async with node(app.address, "new", profiling=True):
                await eventually(lambda: len(app.core.fleet.nodes) == 2)
                trainer.call.cancel()
                again = Trainer(peer)
                await again.send(turn("a", "sleep=30"), reward=None, cancel=("a",))
                await again.send(turn("b", "speedup=1 coverage=1"), reward=None)
                answers = await again.finish()
        assert answers["a"].result.infrastructure_error.cause == "CANCELLED", "it is the same evaluation"
        assert paid(answers["b"]) == 1.5


# The stream


async def test_more_turns_than_the_queue_holds_wait_in_the_stream_and_none_is_lost() -> None:
    async with scheduler(max_queued=20) as (app, _), node(app.address, "n1", lanes=4), connect(app) as peer:
        trainer = Trainer(peer)
        for start in range(0, 400, 100):
            await trainer.send(
                *(turn(f"t{i}", f"speedup={4 if i % 50 == 0 else 1}") for i in range(start, start + 100))
            )
        answers = await trainer.finish(60)
        assert set(answers) == {f"t{i}" for i in range(400)}
        assert len(trainer.order) == 400
        assert sum(one.HasField("remeasured") for one in answers.values()) == 8


async def test_a_trainer_that_does_not_read_is_not_read_either() -> None:
    async with (
        scheduler(max_unsent=5, max_queued=20) as (app, _),
        node(app.address, "n1", lanes=4),
        connect(app) as peer,
    ):
        trainer = Trainer(peer)
        large = "size=300000"
        writing = asyncio.create_task(trainer.send(*(turn(f"t{i}", large) for i in range(300))))
        await eventually(lambda: (sample(app, "outcomes_total", outcome="CORRECT") or 0) > 10)
        await asyncio.sleep(1.0)  # long enough for the rest, if nothing held it back
        assert (sample(app, "requests_total", client_kind="stream") or 0) < 300, "the stream stands still"
        await writing
        assert len(await trainer.finish(60)) == 300


async def test_turns_outlive_a_crash_of_the_scheduler_also_while_they_are_measured_again(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/s.sqlite"
    turns = [
        turn("done", "speedup=1"),
        turn("runs", "sleep=2 speedup=2"),
        turn("twice", "speedup=9 again.sleep=2 again.speedup=2.5"),
    ]
    async with process(store=store) as (first, address, _), node(address, "n1", lanes=4) as fake:
        async with grpc.aio.insecure_channel(address) as peer:
            trainer = Trainer(peer)
            await trainer.send(*turns)
            await trainer.until(lambda: "done" in trainer.answers)
            await eventually(lambda: sorted(fake.started) == ["done", "runs", "twice", "twice"])
            first.kill()
            await first.wait()
        async with process(store=store, listen=address), grpc.aio.insecure_channel(address) as peer:
            again = Trainer(peer)
            await again.send(*turns)
            answers = await again.finish(60)
    assert {name: paid(one) for name, one in answers.items()} == {"done": 1.3, "runs": 2.3, "twice": 2.8}
    assert sorted(fake.started) == ["done", "runs", "twice", "twice"], "nothing was run again"


async def test_a_scheduler_that_stops_says_so() -> None:
    async with scheduler(drain_seconds=0.0) as (app, _), node(app.address, "n1"):
        peer = connect(app)
        trainer = Trainer(peer)
        await trainer.send(turn("a", "sleep=60"))
        await eventually(lambda: len(app.core.attempts) == 1)
    assert isinstance(await failure(trainer.finish()), errors.ShuttingDownError)
    await peer.close()
