"""Tests of the state machine alone, on a fake clock: leases, fencing, order, ageing, deadlines, bounds."""

from __future__ import annotations

import gc
import math

import pytest

from kerneldyno.scheduler.core.attempts import ATTEMPT_ALLOWANCE_SECONDS
from kerneldyno.scheduler.core.model import (
    Attempt,
    Device,
    Evaluation,
    Job,
    Key,
    NodeState,
    Priority,
    Requirement,
    SubmitStatus,
    Verdict,
)
from kerneldyno.scheduler.store.memory import MemoryStore
from tests.scheduler.scheduler_harness import CORRECT, HeldJournal, Reader, World, cause, outcome

pytestmark = pytest.mark.pure


def test_only_the_attempt_with_the_current_token_decides() -> None:
    world = World()
    evaluation = world.submit("a")
    world.report("n1")
    first = world.place()["a"]
    world.pass_by(12)
    assert world.log.lost == [("n1", "expired")]
    assert world.log.retries == ["NODE_LOST"]
    world.report("n2")
    second = world.place()["a"]
    assert not world.core.results.complete(first.token, Verdict("INCORRECT"))
    assert outcome(evaluation) is None
    assert world.core.results.complete(second.token, CORRECT)
    assert not world.core.results.complete(second.token, Verdict("INCORRECT")), "an outcome is decided once"
    assert (outcome(evaluation), evaluation.attempts) == ("CORRECT", 2)
    assert world.log.stale == [first.token, second.token]
    assert world.report("n1", attempt_tokens=(first.token,)) == [first.token], "a lost node is told to drop it"


def test_leases_are_renewed_by_reports_and_a_drained_node_leaves_without_alarm() -> None:
    world = World()
    world.report("n1")
    world.report("leaver", draining=True)
    world.pass_by(60, "n1")
    states = {node.id: node.state for node in world.core.fleet.nodes.values()}
    assert states == {"n1": NodeState.SERVING, "leaver": NodeState.LOST}
    assert world.log.lost == []
    for node in list(world.core.fleet.nodes.values()):
        world.core.nodes.disconnect(node)
    world.pass_by(700)
    assert world.core.fleet.nodes == {}, "nodes long gone are forgotten"


def test_a_node_that_was_away_for_long_with_its_stream_open_gets_work_again() -> None:
    world = World()
    world.report("n1")
    world.pass_by(700)
    assert world.node("n1").state is NodeState.LOST
    world.report("n1", connect=False)
    world.submit("a")
    assert world.placed() == {"a": "n1"}, "over the stream that it has"


def test_a_scheduler_that_was_stopped_blames_nobody() -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    attempt = world.place()["a"]
    world.clock.now += 300  # the process was stopped and continued: time has passed
    world.core.tick()
    assert world.core.fleet.live()
    world.pass_by(9)
    assert world.core.results.complete(attempt.token, CORRECT), "its attempts are still its own"
    assert outcome(evaluation) == "CORRECT"
    world.pass_by(3)
    assert not world.core.fleet.live(), "a whole lease is granted, and no more"


def test_an_open_stream_is_no_lease() -> None:
    world = World()
    world.report("n1")
    world.submit("a")
    world.place()
    world.pass_by(12)
    assert world.node("n1").connected
    assert world.log.dropped == [("t0", True)]
    assert world.placed() == {}
    world.report("n1", connect=False)
    assert world.placed() == {"a": "n1"}, "heard of again, it gets its work over the stream that it has"


def test_nothing_is_placed_on_a_node_without_a_stream_and_what_it_runs_goes_on() -> None:
    world = World()
    world.report("n1", connect=False)
    world.submit("a")
    assert world.placed() == {}
    assert world.core.nodes.connect("n1", "another process") is None
    assert world.core.nodes.connect("nobody", "i") is None
    world.core.nodes.connect("n1", "i")
    attempt = world.place()["a"]
    world.core.nodes.disconnect(world.node("n1"))
    world.submit("b")
    world.pass_by(30, "n1")
    assert world.placed() == {}
    assert world.core.results.complete(attempt.token, CORRECT)


def test_a_node_found_dead_loses_its_attempts_before_its_lease_ends() -> None:
    world = World()
    world.report("n1")
    world.submit("a")
    world.place()
    world.core.nodes.lose(world.node("n1"), "nobody listens")
    world.core.nodes.lose(world.node("n1"), "nobody listens")
    assert (world.log.lost, world.log.retries) == ([("n1", "dead")], ["NODE_LOST"])
    assert world.core.nodes.connect("n1", "i") is None, "it has to synchronize first"
    world.report("n1")
    assert world.log.joined == ["n1", "n1"]


def test_order_is_by_priority_then_age_and_age_wins_in_the_end() -> None:
    world = World(unmatched_seconds=1e6)
    world.submit("old-normal")
    world.pass_by(601)
    for name, priority in (("low", Priority.LOW), ("normal", Priority.NORMAL), ("high", Priority.HIGH)):
        world.submit(name, priority)
    world.submit("normal-2")
    order = []
    world.report("n1")
    for _ in range(5):
        for name, attempt in world.place().items():
            order.append(name)
            world.core.results.complete(attempt.token, CORRECT)
    assert order == ["old-normal", "high", "normal", "normal-2", "low"]


def test_clients_take_turns_however_much_one_of_them_sent() -> None:
    world = World(unmatched_seconds=1e6)
    for i in range(20):
        world.submit(f"greedy{i}", client="greedy/1" if i % 2 else "greedy/2")
    for i in range(3):
        world.submit(f"modest{i}", client="modest")
    world.report("n1")
    order = []
    while placed := world.place():
        for name, attempt in placed.items():
            order.append(name.rstrip("0123456789"))
            world.core.results.complete(attempt.token, CORRECT)
    assert order[:7].count("modest") == 3, "one team, under two client ids, is one share"
    assert order[7:] == ["greedy"] * 16


def test_a_share_has_its_weight_and_its_quota() -> None:
    world = World(max_queued_per_client=100)
    world.core.requests.set_share("double", weight=2.0, quota=6)
    for i in range(6):
        world.submit(f"double{i}", client="double/a")
        world.submit(f"single{i}", client="single")
    assert world.offer("one-more", client="double/b") == (SubmitStatus.FULL, None)
    world.report("n1")
    order = []
    for _ in range(5):
        for name, attempt in world.place().items():
            order.append(name.rstrip("0123456789"))
            world.core.results.complete(attempt.token, CORRECT)
    assert order[:9].count("double") == 6


def test_lanes_and_one_more_per_device_are_filled_and_no_more() -> None:
    world = World()
    world.report("n1", devices=tuple(Device(f"cuda:{i}", "cuda", "H200", 1, 2, i != 2) for i in range(3)))
    for i in range(10):
        world.submit(f"r{i}")
    assert len(world.placed()) == 6, "two devices are ready, each with two lanes and one more"
    world.report("n2", draining=True)
    assert world.placed() == {}


def test_a_line_that_nobody_serves_does_not_block_the_others() -> None:
    world = World()
    world.submit("exotic", Priority.HIGH, Requirement("cuda", "kernelbench"))
    world.submit("plain")
    world.report("n1")
    assert world.placed() == {"plain": "n1"}


@pytest.mark.parametrize(
    ("need", "where"),
    [
        (Requirement("triton", "kernelbench", node_labels=frozenset({("rack", "7")})), "labelled"),
        (Requirement("triton", "kernelbench", node_labels=frozenset({("rack", "8")})), None),
        (Requirement("triton", "kernelbench", node_labels=frozenset({("rack", "7"), ("zone", "x")})), None),
        (Requirement("triton", "kernelbench", min_devices=2), "pair"),
        (Requirement("triton", "kernelbench", min_devices=3), None),
        (Requirement("triton", "kernelbench", device_model="h200"), "pair"),
        (Requirement("triton", "kernelbench", device_model="h200", min_devices=2), None),
        (Requirement("triton", "kernelbench", profiling=True), None),
    ],
)
def test_a_requirement_is_met_whole_or_not_at_all(need: Requirement, where: str | None) -> None:
    world = World()
    world.report("plain")
    world.report("labelled", labels=frozenset({("rack", "7"), ("owner", "me")}))
    world.report(
        "pair",
        devices=(Device("cuda:0", "cuda", "NVIDIA H200", 1, 1, True), Device("cuda:1", "cuda", "L4", 1, 1, True)),
    )
    world.submit("a", need=need)
    assert world.placed() == ({"a": where} if where else {})


def test_a_hot_reference_attracts_until_the_node_is_busier_than_others() -> None:
    world = World()
    for node_id in ("n1", "n2"):
        world.report(node_id, lanes=4)
    for i in range(8):
        world.submit(f"r{i}", reference=b"same")
    spread = list(world.placed().values())
    assert spread[:2] == ["n1", "n1"], "the reference is hot there"
    assert spread.count("n1") == spread.count("n2") == 4, "but no lane stays empty for it"


def test_a_refusal_is_no_attempt_and_keeps_the_place_in_line() -> None:
    world = World()
    world.report("n1")
    first = world.submit("first")
    attempt = world.place()["first"]
    world.submit("second")
    world.core.results.refuse(attempt.token, 2.0)
    assert first.job is not None
    assert (first.job.attempts, world.placed()) == (0, {})
    world.pass_by(3, "n1")
    assert next(iter(world.placed())) == "first"


def test_the_line_is_bounded_in_number_and_bytes() -> None:
    world = World(max_queued=2, max_queued_bytes=100)
    evaluations = [world.submit("a"), world.submit("b")]
    assert world.offer("c") == (SubmitStatus.FULL, None)
    assert world.offer("a") == (SubmitStatus.SAME, evaluations[0]), "known ids are no new work"
    assert world.offer("a", body="other") == (SubmitStatus.REUSED, None)
    for evaluation in evaluations:
        assert world.core.requests.cancel(evaluation)
    world.submit("large", payload=b"x" * 200)
    assert not world.core.requests.has_room("c")


def test_the_quota_of_a_share_is_its_own() -> None:
    world = World(max_queued_per_client=2)
    mine = [world.submit(f"r{i}", client="me/laptop") for i in range(2)]
    assert world.offer("r2", client="me/desktop") == (SubmitStatus.FULL, None)
    world.submit("theirs", client="them")
    world.core.requests.cancel(mine[0])
    world.submit("r2", client="me/desktop")


def test_who_waits_is_told_once_and_the_result_is_found_afterwards() -> None:
    world = World()
    reader, late = Reader(), Reader()
    evaluation = world.submit("a")
    world.core.requests.watch(evaluation, reader)
    world.core.requests.cancel(evaluation)
    assert reader.seen == ["a"]
    found = world.core.requests.get(Key("c", "a"))
    assert found is not None
    assert found is not evaluation, "what is done and on disk is forgotten here"
    assert (cause(found), found.settled) == ("CANCELLED", True)
    world.core.requests.watch(found, late)
    assert late.seen == ["a"]
    assert not world.core.requests.cancel(found), "it is finished"


def test_a_deadline_ends_what_waits_and_what_runs_and_nothing_else() -> None:
    world = World()
    world.report("n1")
    runs = world.submit("runs", timeout_seconds=20.0)
    attempt = world.place()["runs"]
    waits = world.submit("waits", timeout_seconds=10.0, need=Requirement("triton", "kernelbench", min_devices=9))
    patient = world.submit("patient")
    in_time = world.submit("in-time", timeout_seconds=5.0)
    world.core.results.complete(world.place()["patient"].token, CORRECT)
    world.core.results.complete(world.place()["in-time"].token, CORRECT)
    world.pass_by(9, "n1")
    assert (outcome(waits), outcome(runs)) == (None, None)
    world.pass_by(2, "n1")
    assert (cause(waits), waits.attempts) == ("DEADLINE_EXCEEDED", 0)
    world.pass_by(10, "n1")
    assert (cause(runs), runs.attempts) == ("DEADLINE_EXCEEDED", 1)
    assert world.log.dropped == [(attempt.token, False)], "the node is to kill it"
    assert (outcome(patient), outcome(in_time)) == ("CORRECT", "CORRECT")


def test_an_attempt_without_an_end_is_taken_back() -> None:
    world = World()
    world.report("n1")
    world.report("n2")
    evaluation = world.submit("a")
    first = world.place()["a"]
    world.pass_by(240 + ATTEMPT_ALLOWANCE_SECONDS - 1, "n1", "n2")
    assert world.log.retries == []
    world.pass_by(2, "n1", "n2")
    assert (world.log.retries, world.log.dropped) == (["ATTEMPT_OVERDUE"], [(first.token, False)])
    assert world.place()["a"].node is not first.node
    assert evaluation.job is not None
    assert evaluation.job.crashes == 0, "a slow node is no crash"


def test_work_of_a_client_that_is_gone_is_cancelled_after_the_grace() -> None:
    world = World(client_grace_seconds=60, unmatched_seconds=1e6)
    world.core.requests.call_opened("gone")
    world.core.requests.call_opened("gone")
    world.core.requests.call_opened("back")
    left, kept, never_here = (world.submit(client, client=client) for client in ("gone", "back", "never"))
    world.core.requests.call_closed("gone")
    world.pass_by(70)
    assert outcome(left) is None, "one of its calls is still open"
    world.core.requests.call_closed("gone")
    world.core.requests.call_closed("back")
    world.pass_by(50)
    world.core.requests.call_opened("back")
    world.pass_by(20)
    assert cause(left) == "CLIENT_GONE"
    assert (outcome(kept), outcome(never_here)) == (None, None)


def test_work_that_matches_no_node_fails_after_the_limit_but_not_while_one_matches() -> None:
    world = World(unmatched_seconds=100, settle_seconds=math.inf)
    waiting = world.submit("a", need=Requirement("triton", "kernelbench", device_kind="cuda"))
    world.report("n1", lanes=1)
    world.pass_by(60, "n1")
    world.report("gpu", devices=(Device("cuda:0", "cuda", "H200", 1, 1, False),))
    world.core.tick()
    assert world.placed() == {}, "its device is not ready"
    world.pass_by(12, "n1")  # now the matching node is lost
    world.pass_by(90, "n1")
    assert outcome(waiting) is None, "the wait begins anew when a match is lost"
    world.pass_by(20, "n1")
    assert cause(waiting) == "NO_MATCHING_DEVICE"


def test_a_restarted_node_takes_over_its_name_and_its_attempts_run_again() -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    attempt = world.place()["a"]
    assert world.report("n1", instance_id="twin", address="elsewhere:1") is None
    assert evaluation.job is not None
    assert evaluation.job.attempt is attempt
    assert world.report("n1", instance_id="restart") == []
    assert world.log.dropped == [(attempt.token, True)]
    world.pass_by(2, "n1")
    assert world.placed() == {"a": "n1"}
    world.pass_by(6)
    assert world.report("n1", instance_id="moved", address="elsewhere:1") == [], "its predecessor has fallen silent"


def test_without_an_address_a_twin_is_told_by_the_open_stream() -> None:
    world = World()
    world.report("n1", address="")
    assert world.report("n1", instance_id="twin", address="") is None
    world.core.nodes.disconnect(world.node("n1"))
    assert world.report("n1", instance_id="restart", address="") == []


def test_memory_does_not_grow_with_what_is_done() -> None:
    store = MemoryStore()
    journal = HeldJournal(store)
    world = World(store, journal)
    world.report("n1", lanes=4)
    for i in range(1_500):
        world.submit(f"r{i}", timeout_seconds=86_400.0)
        world.run(f"r{i}")
        if i % 100 == 99:
            journal.commit()
    store.close()
    core = world.core
    assert (core.clients.count, len(core.attempts), core.evaluations.waiting()) == (0, 0, 0)
    gc.collect()
    assert sum(type(one) in (Evaluation, Job, Attempt) for one in gc.get_objects()) < 1_200
    assert len(core.attempts._overdue) < 1_200
