"""Tests that the same work runs once: while it runs, while its end is being written, and later from the store."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from kerneldyno.rpc import errors
from kerneldyno.scheduler.core.model import Key, Priority, SubmitStatus, Verdict
from kerneldyno.scheduler.store.memory import MemoryStore
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from kerneldyno.v1 import scheduler_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from kerneldyno.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.scheduler.scheduler_harness import (
    CORRECT,
    CRASH,
    Client,
    HeldJournal,
    Outcome,
    Reader,
    World,
    cause,
    connect,
    failure,
    once,
    outcome,
    request,
    sample,
    scheduler,
)
from tests.waiting import eventually

DEVICE, END_TO_END = evaluation_pb2.SPEEDUP_KIND_DEVICE, evaluation_pb2.SPEEDUP_KIND_END_TO_END

# Rules of the state machine, without sockets


def test_evaluations_of_the_same_work_share_one_attempt_and_each_gets_the_verdict() -> None:
    world = World()
    first, second = world.submit("a", work="w", client="one"), world.submit("b", work="w", client="two")
    world.report("n1", lanes=4)
    attempt = world.run("a")
    third = world.submit("c", work="w")
    assert world.placed() == {}
    assert [outcome(one) for one in (first, second, third)] == ["CORRECT"] * 3
    assert [one.merged for one in (first, second, third)] == [False, True, False]
    assert third.verdict is not None
    assert (third.verdict.cached, third.attempts) == (True, 0)
    assert world.log.deduplications == ["merged", "cached"]
    assert sorted(key.id for key in world.log.done) == ["a", "b", "c"]
    assert attempt.job.evaluations == {}


def test_a_merged_job_is_as_urgent_and_as_old_as_the_first_among_those_who_wait() -> None:
    world = World(unmatched_seconds=1e9)
    world.submit("low", Priority.LOW, work="shared")
    world.submit("normal")
    world.submit("urgent", Priority.HIGH, work="shared")
    world.submit("later", Priority.NORMAL, work="shared")
    world.report("n1")
    assert list(world.placed()) == ["low", "normal"], "the job of `low` is of high priority now"
    assert not any(count for one, count in world.core.queue.ages.depth.items() if one.priority is Priority.LOW)


def test_cancelling_one_of_several_leaves_the_job_and_cancelling_the_last_ends_it() -> None:
    world = World()
    world.report("n1")
    first, second = world.submit("a", work="w"), world.submit("b", work="w")
    attempt = world.place()["a"]
    assert world.core.requests.cancel(first)
    assert (cause(first), outcome(second)) == ("CANCELLED", None)
    assert world.log.dropped == []
    third = world.submit("c", work="w")
    assert third.merged
    assert world.core.requests.cancel(second)
    assert world.core.requests.cancel(third)
    assert world.log.dropped == [(attempt.token, False)]
    assert not world.core.results.complete(attempt.token, CORRECT)
    fresh = world.submit("d", work="w")
    assert not fresh.merged, "a cancellation is no verdict on the work"


def test_a_deadline_is_the_evaluations_own() -> None:
    world = World()
    world.report("n1")
    hasty, patient = world.submit("a", work="w", timeout_seconds=5.0), world.submit("b", work="w")
    attempt = world.place()["a"]
    world.pass_by(6, "n1")
    assert (cause(hasty), outcome(patient)) == ("DEADLINE_EXCEEDED", None)
    assert world.core.results.complete(attempt.token, CORRECT)
    assert outcome(patient) == "CORRECT"


def test_a_retry_keeps_all_who_wait() -> None:
    world = World()
    both = [world.submit("a", work="w"), world.submit("b", work="w")]
    world.report("n1")
    world.report("n2")
    world.run("a", CRASH)
    third = world.submit("c", work="w")
    world.run("a")
    assert [(outcome(one), one.attempts) for one in (*both, third)] == [("CORRECT", 2)] * 3


@pytest.mark.parametrize("last", ["INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "REJECTED", "CORRECT"])
def test_a_verdict_on_the_candidate_answers_again(last: str) -> None:
    world = World()
    world.report("n1")
    world.submit("a", work="w")
    world.run("a", replace(CORRECT, outcome=last))
    again = world.submit("b", work="w")
    assert outcome(again) == last
    assert again.settled


@pytest.mark.parametrize(
    "last", ["TIMEOUT", "OUT_OF_MEMORY", "INVALID", "REFERENCE_ERROR", "PROBLEM_TOO_LARGE", "INFRASTRUCTURE_ERROR"]
)
def test_what_a_repetition_may_change_is_run_again(last: str) -> None:
    world = World()
    world.report("n1")
    world.submit("a", work="w")
    world.run("a", replace(CORRECT, outcome=last))
    assert outcome(world.submit("b", work="w")) is None
    assert world.placed() == {"b": "n1"}


def test_only_what_ran_where_it_would_run_now_answers() -> None:
    world = World()
    world.report("n1")
    world.submit("a", work="w")
    world.run("a")
    world.pass_by(12)
    nowhere = world.submit("b", work="w")
    assert outcome(nowhere) is None, "no node is registered"
    world.report("n1", instance_id="2", environment=b"another torch")
    elsewhere = world.submit("c", work="w")
    assert (outcome(elsewhere), elsewhere.merged) == (None, True)
    world.run("b", replace(CORRECT, outcome="INCORRECT", environment=b"another torch/CPU"))
    now = world.submit("d", work="w")
    assert outcome(now) == "INCORRECT"
    world.report("n2")
    world.core.nodes.lose(world.node("n1"), "dead")
    assert outcome(world.submit("e", work="w")) == "CORRECT", "each environment has its own"


def test_a_verdict_that_does_not_say_where_it_was_found_answers_nobody() -> None:
    world = World()
    world.report("n1")
    world.submit("a", work="w")
    world.run("a", Verdict("CORRECT", b"payload"))
    assert outcome(world.submit("b", work="w")) is None


def test_a_fresh_run_is_neither_merged_nor_cached_and_its_result_may_answer() -> None:
    world = World()
    world.report("n1", lanes=4)
    world.submit("a", work="w")
    fresh = world.submit("b", work="w", fresh=True)
    assert not fresh.merged
    first, second = world.place().values()
    world.core.results.complete(first.token, CORRECT)
    assert outcome(fresh) is None
    another = world.submit("c", work="w", fresh=True)
    world.core.results.complete(second.token, replace(CORRECT, outcome="INCORRECT"))
    assert (outcome(fresh), outcome(another)) == ("INCORRECT", None)
    assert outcome(world.submit("d", work="w")) == "INCORRECT", "the newest result answers"


def test_what_comes_while_the_end_is_being_written_has_that_end() -> None:
    store = MemoryStore()
    journal = HeldJournal(store)
    world, reader = World(store, journal), Reader()
    world.report("n1")
    world.submit("a", work="w")
    world.run("a")
    between = world.submit("b", work="w")
    world.core.requests.watch(between, reader)
    assert (outcome(between), between.merged, reader.seen) == ("CORRECT", True, [])
    assert world.placed() == {}
    fresh = world.submit("c", work="w", fresh=True)
    assert outcome(fresh) is None
    journal.commit()
    assert reader.seen == ["b"]
    after = world.submit("d", work="w")
    assert after.verdict is not None
    assert after.verdict.cached
    world.core.requests.watch(after, reader)
    assert reader.seen == ["b"], "an answer from the store is told once it is on disk, too"
    journal.commit()
    assert reader.seen == ["b", "d"]
    store.close()


def test_the_end_of_a_fresh_run_does_not_end_another_run_of_the_same_work() -> None:
    store = MemoryStore()
    journal = HeldJournal(store)
    world = World(store, journal)
    world.report("n1", lanes=4)
    first = world.submit("a", work="w")
    world.submit("b", work="w", fresh=True)
    placed = world.place()
    world.core.results.complete(placed["b"].token, CORRECT)
    joins = world.submit("c", work="w")
    assert (outcome(first), outcome(joins), world.log.dropped) == (None, None, [])
    assert world.core.results.complete(placed["a"].token, CORRECT)
    assert (outcome(first), outcome(joins)) == ("CORRECT", "CORRECT")
    journal.commit()
    store.close()


def test_an_uncacheable_end_that_is_being_written_answers_nobody() -> None:
    store = MemoryStore()
    journal = HeldJournal(store)
    world = World(store, journal)
    world.report("n1")
    world.submit("a", work="w")
    world.run("a", replace(CORRECT, outcome="TIMEOUT"))
    again = world.submit("b", work="w")
    assert (outcome(again), again.merged) == (None, False)
    journal.commit()
    world.run("b")
    journal.commit()
    found = world.core.requests.get(Key("c", "b"))
    assert found is not None
    assert outcome(found) == "CORRECT"
    store.close()


def test_the_same_id_is_one_evaluation_before_and_after_its_end() -> None:
    world = World()
    world.report("n1")
    first = world.submit("a")
    assert world.offer("a") == (SubmitStatus.SAME, first)
    world.run("a")
    submission, found = world.offer("a")
    assert submission is SubmitStatus.SAME
    assert found is not None
    assert (outcome(found), found.attempts) == ("CORRECT", 1)
    assert world.offer("a", body="other") == (SubmitStatus.REUSED, None)
    assert world.offer("a", client="somebody else")[0] is SubmitStatus.NEW


# Over sockets


def stripped(result: EvalResult) -> bytes:
    """Return what a result says about the work, without the fields of its own request."""
    kept = EvalResult()
    kept.CopyFrom(result)
    for name in ("id", "accept_time", "merged", "stages"):
        kept.ClearField(name)  # type: ignore[arg-type]
    return kept.SerializeToString(deterministic=True)


async def test_a_thousand_parallel_submits_of_the_same_work_are_one_run() -> None:
    async with scheduler() as (app, _):

        async def one_client(name: str) -> list[EvalResult]:
            async with connect(app) as peer:
                client = Client(SchedulerServiceStub(peer), name)
                work = (request(f"{name}-{i}", "outcome=INCORRECT", work="w") for i in range(125))
                for batch in iter(lambda: list(itertools.islice(work, 50)), []):
                    await client.send(*batch)
                return list((await client.finish(60)).values())

        clients = asyncio.gather(*(one_client(f"c{i}") for i in range(8)))
        await eventually(lambda: app.core.clients.count == 1000, 30)
        async with node(app.address, "n1") as fake:
            answers = [result for some in await clients for result in some]
        assert fake.started == ["w"]
        assert len({r.id for r in answers}) == 1000
        assert len({stripped(r) for r in answers}) == 1
        assert answers[0].outcome == Outcome.INCORRECT
        assert sum(r.merged for r in answers) == 999
        assert not any(r.cached for r in answers)
        assert sample(app, "deduplicated_total", how="merged") == 999
        assert sample(app, "placements_total") == 1
        assert sample(app, "outcomes_total", outcome="INCORRECT") == 1000


async def test_the_same_id_a_hundred_times_in_parallel_is_one_evaluation() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        calls = [stub.EvaluateOnce(once("a", "sleep=0.3", client_id="c")) for _ in range(50)]
        clients = [Client(stub) for _ in range(50)]
        for client in clients:
            await client.send(request("a", "sleep=0.3"))
        results = [answer.result for answer in await asyncio.gather(*calls)]
        results += [(await client.finish())["a"] for client in clients]
        assert len({r.SerializeToString(deterministic=True) for r in results}) == 1
        assert (fake.started, results[0].merged) == (["a"], False)
        assert sample(app, "outcomes_total", outcome="CORRECT") == 1


async def test_the_work_is_the_request_without_what_is_the_evaluations_own() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        await fake.at_work.wait()
        first = (await stub.EvaluateOnce(once("a", work="w"))).result

        async def again(number: int, **fields: object) -> EvalResult:
            result: EvalResult = (await stub.EvaluateOnce(once(f"again{number}", work="w", **fields))).result
            return result

        same = [
            await again(1),
            await again(2, priority=evaluation_pb2.PRIORITY_HIGH, labels={"k": "v"}),
            await again(3, entry_point="Model", num_perf_trials=100),
            await again(4, total_timeout={"seconds": 60}),
        ]
        assert [(r.cached, r.merged, r.digest, r.attempts) for r in same] == [(True, False, first.digest, 0)] * 4
        assert dict(same[1].labels) == {"k": "v"}
        assert fake.started == ["w"]
        assert (sample(app, "deduplicated_total", how="cached"), sample(app, "placements_total")) == (4, 1)

        other = [await again(5, salt="mine"), await again(6, num_perf_trials=99), await again(7, skip_cache=True)]
        assert [r.cached for r in other] == [False] * 3
        assert other[0].digest != first.digest
        assert other[2].digest == first.digest
        assert len(fake.started) == 4


async def test_each_evaluation_of_the_same_work_says_which_speedup_counts_for_it() -> None:
    script = "sleep=0.3 speedup=2 end_to_end=3"
    kinds = {"a": END_TO_END, "b": evaluation_pb2.SPEEDUP_KIND_UNSPECIFIED, "c": DEVICE, "d": END_TO_END}
    told = {"a": END_TO_END, "b": DEVICE, "c": DEVICE, "d": END_TO_END}
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(*(request(name, script, work="w", speedup_kind=kind) for name, kind in kinds.items()))
        await client.send(request("wrong", "outcome=INCORRECT", speedup_kind=END_TO_END))
        await client.send(request("untimed", "speedup=0", speedup_kind=END_TO_END))
        results = await client.finish()
        assert {name: results[name].speedup_kind for name in kinds} == told
        assert [results[name].merged for name in kinds] == [False, True, True, True]
        assert len({results[name].digest for name in kinds}) == 1
        assert {(one.speedup, one.end_to_end_speedup) for one in map(results.get, kinds) if one} == {(2.0, 3.0)}
        assert {results[name].speedup_kind for name in ("wrong", "untimed")} == {0}, "what was not timed says neither"

        for name, kind in kinds.items():
            answer = (await stub.EvaluateOnce(once(f"{name} later", script, work="w", speedup_kind=kind))).result
            assert (answer.cached, answer.speedup_kind) == (True, told[name])
        assert fake.started.count("w") == 1

        listed = await stub.ListEvaluations(pb.ListEvaluationsRequest(client_id="c"))
        brief = {one.id: one.result for one in listed.evaluations}
        assert {name: brief[name].speedup_kind for name in kinds} == told
        assert {brief[name].end_to_end_speedup for name in kinds} == {3.0}


async def test_another_speedup_that_counts_is_another_body_and_the_usual_one_spelled_out_is_not() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        first = (await stub.EvaluateOnce(once("a", client_id="c"))).result
        same = (await stub.EvaluateOnce(once("a", client_id="c", speedup_kind=DEVICE, timing_precision=0.01))).result
        assert same == first
        for other in ({"speedup_kind": END_TO_END}, {"timing_precision": 0.02}):
            refused = await failure(stub.EvaluateOnce(once("a", client_id="c", **other)))
            assert isinstance(refused, errors.IdReusedError)


@pytest.mark.parametrize(
    ("fields", "field"), [({"timing_precision": 2.0}, "timing_precision"), ({"speedup_kind": 7}, "speedup_kind")]
)
async def test_a_request_for_a_time_or_a_precision_that_is_not_known_is_refused(
    fields: dict[str, float], field: str
) -> None:
    async with scheduler() as (app, stub), node(app.address, "n1"):
        refused = await failure(stub.EvaluateOnce(once("a", **fields)))
        assert isinstance(refused, errors.InvalidRequestError)
        assert [violation.field for violation in refused.violations] == [field]


async def test_a_result_is_no_answer_once_no_node_of_its_environment_is_there() -> None:
    async with scheduler() as (app, stub):
        async with node(app.address, "old"):
            assert not (await stub.EvaluateOnce(once("a", work="w"))).result.cached
        environment = evaluation_pb2.Environment(torch_version="scripted", triton_version="newer")
        await eventually(lambda: not app.core.fleet.live())
        async with node(app.address, "new", environment=environment) as new:
            assert not (await stub.EvaluateOnce(once("b", work="w"))).result.cached
            assert new.started == ["w"]
            async with node(app.address, "old-2") as old:
                await old.at_work.wait()
                answer = (await stub.EvaluateOnce(once("c", work="w"))).result
                assert answer.cached
                assert old.started == []


async def test_one_of_many_who_wait_goes_away_and_the_others_get_the_result() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        client = Client(stub)
        await client.send(*(request(f"r{i}", "sleep=0.4", work="w") for i in range(3)))
        call = stub.EvaluateOnce(once("x", "sleep=0.4", work="w"))
        await eventually(lambda: app.core.clients.count == 4 and fake.started == ["w"])
        await client.send(cancel=("r0",))
        call.cancel()
        results = await client.finish()
        assert results["r0"].infrastructure_error.cause == "CANCELLED"
        assert {results[name].outcome for name in ("r1", "r2")} == {Outcome.CORRECT}
        assert (fake.started, fake.cancelled) == (["w"], [])


async def test_a_body_is_checked_before_anything_is_merged() -> None:
    async with scheduler() as (app, stub), node(app.address, "n1") as fake:
        await fake.at_work.wait()
        client = Client(stub)
        await client.send(request("a", "sleep=0.3", work="w"), EvalRequest(id="b"), request("c", "sleep=0.3", work="w"))
        results = await client.finish()
        assert {name: r.outcome for name, r in results.items()} == {
            "a": Outcome.CORRECT,
            "b": Outcome.INVALID,
            "c": Outcome.CORRECT,
        }
        assert not results["b"].digest
