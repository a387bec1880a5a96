"""Problems that are too large for a device: a larger device tries them. Without one, PROBLEM_TOO_LARGE is final."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldyno.scheduler.core.model import Device, Evaluation, MemoryShortage, Requirement, Verdict
from kerneldyno.testing.scripted_node import node
from kerneldyno.v1 import evaluation_pb2
from tests.scheduler.scheduler_harness import (
    ENVIRONMENT,
    NEED,
    Client,
    Outcome,
    World,
    cause,
    once,
    outcome,
    sample,
    scheduler,
)
from tests.scheduler.scheduler_harness import request as request_for
from tests.waiting import eventually

GIB = 1 << 30

# Rules of the state machine, without sockets


def too_large(needed: int = 0, *, device: str = "cuda:0", had: int = 7 * GIB, of_device: bool = True) -> Verdict:
    """Return a judge's verdict on a problem that does not fit."""
    shortage = MemoryShortage(device, of_device, needed, had)
    return Verdict("PROBLEM_TOO_LARGE", b"small", environment=ENVIRONMENT + b"/CPU", shortage=shortage)


def gpus(*gib: int, kind: str = "cuda") -> dict[str, Any]:
    """Return the devices of a node from their memory sizes."""
    return {"devices": tuple(Device(f"{kind}:{i}", kind, "GPU", size * GIB, 1, True) for i, size in enumerate(gib))}


def tried_on_small(world: World, verdict: Verdict, need: Requirement = NEED) -> Evaluation:
    """Submit "a", and let the only connected node, which has 8 GiB, answer that the problem is too large."""
    world.report("small", **gpus(8))
    evaluation = world.submit("a", need=need)
    assert world.run("a", verdict).node.id == "small"
    return evaluation


def test_a_larger_device_tries_it_and_its_verdict_counts() -> None:
    world = World()
    world.report("large", **gpus(16), connect=False)
    evaluation = tried_on_small(world, too_large())
    assert (outcome(evaluation), world.log.retries, world.placed()) == (None, ["PROBLEM_TOO_LARGE"], {})
    world.report("large", **gpus(16))
    assert world.run("a").node.id == "large"
    assert (outcome(evaluation), evaluation.attempts) == ("CORRECT", 2)


@pytest.mark.parametrize(
    ("others", "verdict", "need"),
    [
        ([], too_large(), NEED),
        ([gpus(8)], too_large(), NEED),
        ([gpus(16)], too_large(17 * GIB), NEED),
        ([gpus(16, kind="cpu")], too_large(), NEED),
        ([gpus(16)], too_large(of_device=False), NEED),
        ([gpus(16) | {"labels": frozenset({("pool", "b")})}], too_large(), NEED),
        ([gpus(16)], too_large(), Requirement("triton", "kernelbench", device_model="GPU", min_devices=2)),
        ([gpus(16) | {"backends": frozenset({"cuda"})}], too_large(), NEED),
    ],
    ids=["alone", "as-small", "needs-more", "other-kind", "host-memory", "not-labelled", "too-few", "other-backend"],
)
def test_it_is_the_answer_where_no_device_can_help(
    others: list[dict[str, Any]], verdict: Verdict, need: Requirement
) -> None:
    world = World()
    for number, fields in enumerate(others):
        world.report(f"n{number}", **fields, connect=False)
    world.report("small", **gpus(8, 8), labels=frozenset({("pool", "a")}))
    if "labels" in (others or [{}])[0]:
        need = Requirement("triton", "kernelbench", node_labels=frozenset({("pool", "a")}))
    evaluation = world.submit("a", need=need)
    world.run("a", verdict)
    assert (outcome(evaluation), evaluation.attempts, world.log.retries) == ("PROBLEM_TOO_LARGE", 1, [])


def test_the_larger_device_may_be_on_the_same_node() -> None:
    world = World()
    world.report("n1", **gpus(8, 16))
    evaluation = world.submit("a")
    world.run("a", too_large())
    again = world.place()["a"]
    need = again.job.spec.requirement
    assert (need.device_kind, need.min_memory_bytes) == ("cuda", 8 * GIB + 1)
    world.core.results.complete(again.token, too_large(device="cuda:1", had=15 * GIB))
    assert (outcome(evaluation), evaluation.attempts) == ("PROBLEM_TOO_LARGE", 2)


def test_a_node_that_does_not_name_its_device_may_have_meant_the_largest() -> None:
    world = World()
    world.report("n1", **gpus(8, 16))
    evaluation = world.submit("a")
    world.run("a", too_large(device=""))
    assert outcome(evaluation) == "PROBLEM_TOO_LARGE"


def test_what_it_is_known_to_need_spares_the_devices_between() -> None:
    world = World()
    world.report("middle", **gpus(16), connect=False)
    world.report("large", **gpus(32), connect=False)
    evaluation = tried_on_small(world, too_large(20 * GIB))
    world.report("middle", **gpus(16))
    assert world.placed() == {}
    world.report("large", **gpus(32))
    assert world.run("a").node.id == "large"
    assert outcome(evaluation) == "CORRECT"


def test_each_time_it_needs_more_until_nobody_has_it() -> None:
    world = World()
    for number in (2, 3, 4):
        world.report(f"n{number}", **gpus(8 * number), connect=False)
    evaluation = tried_on_small(world, too_large())
    for number in (2, 3, 4):
        assert outcome(evaluation) is None
        world.report(f"n{number}", **gpus(8 * number))
        assert world.run("a", too_large(had=7 * number * GIB)).node.id == f"n{number}"
    assert (outcome(evaluation), evaluation.attempts) == ("PROBLEM_TOO_LARGE", 4)


def test_it_is_no_try_that_infrastructure_failed() -> None:
    world = World()
    world.report("large", **gpus(16), connect=False)
    evaluation = tried_on_small(world, too_large())
    world.report("large", **gpus(16))
    for _ in range(3):
        assert outcome(evaluation) is None
        world.run("a", Verdict.failed("NODE_PROTOCOL", "x", retryable=True))
        world.pass_by(31, "small", "large")
    assert (cause(evaluation), evaluation.attempts) == ("NODE_PROTOCOL", 4)


def test_when_the_larger_device_goes_for_good_what_is_known_is_the_answer() -> None:
    world = World(unmatched_seconds=60)
    world.report("large", **gpus(16), connect=False)
    evaluation = tried_on_small(world, too_large())
    world.core.nodes.lose(world.node("large"), "it died")
    world.pass_by(55, "small")
    assert outcome(evaluation) is None
    world.pass_by(10, "small")
    assert outcome(evaluation) == "PROBLEM_TOO_LARGE"
    assert evaluation.verdict is not None
    assert evaluation.verdict.payload == b"small"


def test_it_never_answers_a_later_request() -> None:
    world = World()
    assert outcome(tried_on_small(world, too_large())) == "PROBLEM_TOO_LARGE"
    world.report("large", **gpus(16))
    again = world.submit("again", work="a")
    assert (outcome(again), again.merged) == (None, False)
    assert world.placed().keys() == {"again"}


def test_everybody_who_waits_for_it_gets_the_larger_devices_verdict() -> None:
    world = World()
    world.report("large", **gpus(16), connect=False)
    world.report("small", **gpus(8))
    both = [world.submit(name, work="w") for name in ("a", "b")]
    world.run("a", too_large())
    third = world.submit("c", work="w")
    world.report("large", **gpus(16))
    world.run("a")
    assert [outcome(one) for one in (*both, third)] == ["CORRECT"] * 3


def test_a_restarted_scheduler_waits_for_devices_that_may_still_come() -> None:
    first = World()
    first.report("small", **gpus(8))
    first.submit("a")
    token = first.place()["a"].token

    world = World(store=first.store, lease_seconds=30, unmatched_seconds=60)
    world.core.recover(first.store.recover(), lambda payload: next(iter(first.core.evaluations.jobs.values())).spec)
    world.report("small", **gpus(8), attempt_tokens=(token,))
    assert world.core.results.complete(token, too_large())
    evaluation = next(iter(world.core.evaluations.by_key.values()))
    assert outcome(evaluation) is None
    world.report("large", **gpus(16))
    assert world.run("a").node.id == "large"
    assert outcome(evaluation) == "CORRECT"


# Over real sockets


async def test_a_large_problem_goes_from_the_small_node_to_the_large_one() -> None:
    async with scheduler() as (app, stub), node(app.address, "small", memory_bytes=8 * GIB) as small:
        await small.at_work.wait()
        client = Client(stub)
        # The small node gets it before the large node comes, and still judges it then.
        await client.send(request_for("a", "needs=12 sleep=1"))
        await eventually(lambda: small.started == ["a"])
        async with node(app.address, "large", memory_bytes=16 * GIB) as large:
            result = (await client.finish())["a"]
            assert (small.started, large.started) == (["a"], ["a"])
        assert Outcome.Name(result.outcome) == "CORRECT"
        assert (result.environment.node_id, result.attempts) == ("large", 2)
        assert sample(app, "retries_total", cause="PROBLEM_TOO_LARGE") == 1
        assert sample(app, "outcomes_total", outcome="PROBLEM_TOO_LARGE") == 0


async def test_the_node_is_told_what_the_problem_needs() -> None:
    """A node with several devices needs this to choose among them."""
    seen: list[evaluation_pb2.DeviceSelector] = []
    async with scheduler() as (app, stub), node(app.address, "small", memory_bytes=8 * GIB) as small:
        await small.at_work.wait()
        client = Client(stub)
        await client.send(request_for("a", "needs=12 says=no sleep=1"))
        await eventually(lambda: small.started == ["a"])
        async with node(app.address, "large", memory_bytes=16 * GIB) as large:
            take = large._take
            large._take = lambda one: (seen.append(one.request.device), take(one))[1]  # type: ignore[method-assign,assignment]
            await client.finish()
    assert [(one.kind, one.min_memory_bytes) for one in seen] == [("cpu", 8 * GIB + 1)]


@pytest.mark.parametrize("others", [[8 * GIB], [16 * GIB]], ids=["as-small", "larger-but-too-small"])
async def test_without_a_device_that_holds_it_the_client_is_told(others: list[int]) -> None:
    async with scheduler() as (app, stub), node(app.address, "small", memory_bytes=8 * GIB) as small:
        await small.at_work.wait()
        client = Client(stub)
        await client.send(request_for("a", "needs=20 sleep=1"))
        await eventually(lambda: small.started == ["a"])
        async with node(app.address, "other", memory_bytes=others[0]) as other:
            await other.at_work.wait()
            result = (await client.finish())["a"]
            assert other.started == [], "it is known to need more"
        assert Outcome.Name(result.outcome) == "PROBLEM_TOO_LARGE"
        assert result.problem_too_large.needed_bytes == 20 * GIB
        assert result.attempts == 1
        assert sample(app, "outcomes_total", outcome="PROBLEM_TOO_LARGE") == 1

        again = (await stub.EvaluateOnce(once("b", "needs=20 sleep=1", client_id="c", work="a"))).result
        assert (Outcome.Name(again.outcome), again.cached, small.started) == ("PROBLEM_TOO_LARGE", False, ["a", "a"])


async def test_when_the_large_node_is_lost_it_does_not_wait_for_ever() -> None:
    async with (
        scheduler(unmatched_seconds=1.0) as (app, stub),
        node(app.address, "small", memory_bytes=8 * GIB) as small,
    ):
        await small.at_work.wait()
        client = Client(stub)
        await client.send(request_for("a", "needs=12 sleep=1"))
        await eventually(lambda: small.started == ["a"])
        async with node(app.address, "large", memory_bytes=16 * GIB) as large:
            await eventually(lambda: large.started == ["a"])
        await client.until(lambda: "a" in client.results)
        assert Outcome.Name(client.results["a"].outcome) == "PROBLEM_TOO_LARGE"
        client.call.cancel()
