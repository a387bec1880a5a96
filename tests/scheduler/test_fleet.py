"""Tests of the fleet alone: twins, leases, drains, quarantine, and placement, which a slow implementation checks."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import (
    STAGE_BUILDING,
    STAGE_QUEUED,
    Attempt,
    Device,
    Job,
    Node,
    NodeState,
    Priority,
    Report,
    Requirement,
    Spec,
)
from kerneldyno.v1 import evaluation_pb2

pytestmark = pytest.mark.pure

NEED = Requirement("triton", "kernelbench")
#: Work that may have native code to build.
BUILT = Requirement("triton", "kernelbench", may_build=True)
STAGE_PREPARING = evaluation_pb2.STAGE_PREPARING

_tokens = (f"t{i}" for i in itertools.count())


def gpus(count: int, lanes: int = 2, model: str = "NVIDIA H200", ready: bool = True) -> tuple[Device, ...]:
    return tuple(Device(f"cuda:{i}", "cuda", model, 1 << 37, lanes, ready) for i in range(count))


def report(node_id: str, instance_id: str = "1", **changes: Any) -> Report:
    values: dict[str, Any] = {
        "address": f"{node_id}:50052",
        "devices": gpus(1),
        "backends": frozenset({"triton"}),
        "toolkits": frozenset({"kernelbench"}),
        "environment": b"torch 2.8",
        **changes,
    }
    return Report(node_id, instance_id, **values)


def job(need: Requirement = NEED, reference: bytes = b"ref", crashes: int = 0) -> Job:
    made = Job(b"digest", Spec(need, reference, b"p", 240.0), "share", Priority.NORMAL, 0.0)
    made.crashes = crashes
    return made


class World:
    """A fleet and a clock that only tests move."""

    def __init__(self) -> None:
        self.fleet = Fleet(2.0, 10.0, lambda environment, model: environment + b"/" + model.encode())
        self.now = 1000.0

    def serving(self, node_id: str, instance_id: str = "1", **changes: Any) -> Node:
        node = self.fleet.update(report(node_id, instance_id, **changes), self.now, self.now)
        self.fleet.connect(node)
        return node

    def choose(self, one: Job | None = None, *, last_try: bool = False) -> Node | None:
        return self.fleet.choose(one or job(), self.now, last_try=last_try)

    def put(self, node: Node, one: Job | None = None) -> Attempt:
        one = one or job()
        attempt = Attempt(next(_tokens), one, node, self.now)
        self.fleet.attach(attempt)
        node.remember(one.spec.reference)
        return attempt

    def place(self, one: Job | None = None) -> Node | None:
        """Choose a node as `core` does, and put the job there."""
        one = one or job()
        node = self.choose(one, last_try=one.crashes >= 2)
        if node is not None:
            self.put(node, one)
        return node

    def move(self, attempt: Attempt, stage: int) -> None:
        self.fleet.move(attempt, stage, "" if stage in (STAGE_QUEUED, STAGE_BUILDING) else "cuda:0")

    def fail(self, node: Node) -> float:
        """Fail an attempt of `node` as soon as it gets one; return how long it got none."""
        pause = max(0.0, node.held_until - self.now)
        self.now += pause
        assert self.choose() is node
        self.fleet.failed(node, self.now, self.now)
        return pause


# Twins and restarts


@pytest.mark.parametrize(
    ("old", "new", "connected", "silent_seconds", "twin"),
    [
        ("a:1", "a:1", True, 0.0, False),  # only one process can listen there
        ("a:1", "b:1", True, 0.0, True),
        ("a:1", "b:1", False, 0.0, True),  # its stream may come back
        ("a:1", "b:1", True, 5.0, False),
        ("", "", True, 4.9, True),
        ("", "", True, 5.0, False),
        ("", "", False, 0.0, False),
        ("a:1", "", True, 0.0, True),
        ("", "a:1", True, 0.0, True),
        ("", "a:1", False, 0.0, False),
    ],
)
def test_a_restart_is_told_from_a_twin(old: str, new: str, connected: bool, silent_seconds: float, twin: bool) -> None:
    world = World()
    node = world.serving("n1", address=old)
    if not connected:
        world.fleet.disconnect(node)
    now = world.now + silent_seconds
    assert world.fleet.is_duplicate(report("n1", "2", address=new), now) is twin
    assert not world.fleet.is_duplicate(report("n1", "1", address="moved:1"), now), (
        "the same process is no twin of its own"
    )
    assert not world.fleet.is_duplicate(report("n2", "2", address=old), now)
    world.fleet.lose(node)
    assert not world.fleet.is_duplicate(report("n1", "2", address=new), now)


def test_a_new_instance_is_a_new_node_with_the_troubles_of_the_old() -> None:
    world = World()
    old = world.serving("n1")
    attempt = world.put(old)
    for _ in range(3):
        world.fleet.failed(old, world.now, world.now)
    world.fleet.set_drained("n1", True)
    new = world.serving("n1", "2")
    assert new is not old
    assert (new.attempts, new.attempts_by_requirement, new.hot, new.load[0]) == ({}, {}, {}, 0.0)
    assert (new.drained, new.failures, new.quarantined_wall) == (True, 3, old.quarantined_wall)
    world.fleet.set_drained("n1", False)
    assert world.choose() is None, "the pause is not over either"
    world.now += 10
    assert world.choose() is new
    world.fleet.detach(attempt)
    world.fleet.connect(old)
    assert world.choose() is new, "what happens to the old instance later is of no matter"
    world.fleet.lose(new)
    assert world.choose() is None


def test_an_instance_that_was_replaced_is_not_kept() -> None:
    world = World()
    old = world.serving("n1")
    attempt = world.put(old)
    new = world.serving("n1", "2")
    world.fleet.detach(attempt)
    world.fleet.connect(old)
    world.fleet.succeeded(old)
    assert world.fleet._open == {False: {new}, True: {new}}


def test_a_heartbeat_keeps_the_node_and_what_runs_on_it() -> None:
    world = World()
    node = world.serving("n1")
    attempt = world.put(node)
    assert world.serving("n1", draining=True) is node
    assert (node.state, node.attempts) == (NodeState.DRAINING, {attempt.token: attempt})
    assert world.choose() is None
    world.serving("n1")
    assert world.choose() is node


# Leases


def test_a_silent_node_expires_once_it_is_marked_and_is_forgotten_later() -> None:
    world = World()
    node, other = world.serving("n1"), world.serving("n2")
    assert world.fleet.expired(world.now + 10) == []
    other.heard_at = world.now + 10
    assert world.fleet.expired(world.now + 10.1) == [node]
    world.fleet.lose(node)
    assert world.fleet.expired(world.now + 10.1) == []
    assert world.fleet.live() == [other]
    assert world.fleet.nodes["n1"].state is NodeState.LOST
    world.fleet.expired(world.now + 611)
    assert set(world.fleet.nodes) == {"n1", "n2"}, "its stream is open: it may report again and go on"
    world.fleet.disconnect(node)
    world.fleet.expired(world.now + 611)
    assert set(world.fleet.nodes) == {"n2"}


def test_a_lost_node_gets_nothing_until_it_is_heard_of_again() -> None:
    world = World()
    node = world.serving("n1")
    world.fleet.lose(node)
    assert (world.choose(), world.fleet.offers.match(NEED), world.fleet.offers.environments(NEED)) == (
        None,
        False,
        set(),
    )
    assert world.fleet.update(report("n1"), world.now, world.now) is node
    assert world.choose() is node
    assert world.fleet.offers.match(NEED)


def test_after_a_pause_of_this_process_every_lease_starts_anew() -> None:
    world = World()
    world.serving("n1")
    world.fleet.renew_all(world.now + 100)
    assert world.fleet.expired(world.now + 105) == []


def test_a_restored_node_has_a_lease_to_come_back_and_gets_nothing_before() -> None:
    world = World()
    world.fleet.set_drained("n2", True)
    node, drained = (world.fleet.restore(name, "1", world.now, world.now) for name in ("n1", "n2"))
    assert world.fleet.restore("n1", "1", world.now, world.now) is node
    attempt = world.put(node)
    world.fleet.connect(node)
    assert (world.choose(), world.fleet.offers.match(NEED)) == (None, False)
    assert (node.state, drained.state) == (NodeState.SERVING, NodeState.DRAINING)
    assert world.serving("n1", devices=gpus(1, lanes=1)) is node
    assert node.attempts == {attempt.token: attempt}
    assert world.place() is node
    assert world.place() is None, "the attempt from before takes its place: a lane and one more"
    assert world.fleet.expired(world.now + 11) == [node, drained]


# Which nodes take work


def test_only_a_connected_node_gets_work() -> None:
    world = World()
    node = world.fleet.update(report("n1"), world.now, world.now)
    assert world.choose() is None
    world.fleet.connect(node)
    assert world.choose() is node
    world.fleet.disconnect(node)
    assert world.choose() is None


def test_a_drain_outlives_the_node_and_may_come_before_it() -> None:
    world = World()
    world.fleet.set_drained("n1", True)
    node = world.serving("n1")
    assert (node.state, world.choose()) == (NodeState.DRAINING, None)
    world.fleet.lose(node)
    world.fleet.expired(world.now + 1000)
    world.now += 1000
    assert world.serving("n1").state is NodeState.DRAINING
    world.fleet.set_drained("n1", False)
    assert world.choose() is world.fleet.nodes["n1"]


def test_a_held_node_gets_nothing_until_the_longest_hold_is_over() -> None:
    world = World()
    node = world.serving("n1")
    world.fleet.hold(node, world.now, 5.0)
    world.fleet.hold(node, world.now, 1.0)
    world.now += 4.9
    assert world.choose() is None
    world.now += 0.1
    assert world.choose() is node


def test_failures_in_a_row_pause_a_node_for_longer_and_then_quarantine_it() -> None:
    world = World()
    node = world.serving("n1")
    pauses = [world.fail(node) for _ in range(3)]
    assert (pauses, node.state, node.quarantined_wall) == ([0, 1, 2], NodeState.QUARANTINED, world.now)
    since = node.quarantined_wall
    assert [world.fail(node) for _ in range(7)] == [10, 20, 40, 80, 160, 300, 300]
    assert node.quarantined_wall == since
    assert world.fail(node) == 300


def test_in_quarantine_a_node_gets_one_attempt_at_a_time_until_one_succeeds() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(8))
    for _ in range(3):
        world.fail(node)
    world.now += 10
    assert world.place() is node
    assert world.place() is None
    (attempt,) = node.attempts.values()
    world.fleet.detach(attempt)
    world.fleet.succeeded(node)
    assert (node.state, node.failures) == (NodeState.SERVING, 0)
    assert [world.place() for _ in range(25)] == [node] * 24 + [None]


def test_a_verdict_ends_the_row_of_failures() -> None:
    world = World()
    node = world.serving("n1")
    for _ in range(5):
        world.fail(node)
        world.fail(node)
        world.fleet.succeeded(node)
    assert node.state is NodeState.SERVING


def test_failures_of_what_ran_before_quarantine_do_not_lengthen_it() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(8))
    for _ in range(24):  # the driver died, and all attempts failed
        world.fleet.failed(node, world.now, world.now)
    assert node.held_until == world.now + 10


def test_a_release_ends_quarantine_and_its_pause() -> None:
    world = World()
    node = world.serving("n1")
    for _ in range(6):
        world.fail(node)
    world.fleet.release(node)
    assert (node.state, world.choose()) == (NodeState.SERVING, node)
    assert [world.fail(node) for _ in range(2)] == [0, 1], "and it starts with a clean record"


# Which node gets an attempt


def test_lanes_and_one_more_per_ready_device_are_filled_and_no_more() -> None:
    world = World()
    node = world.serving("n1", devices=(*gpus(2, lanes=2), *gpus(1, ready=False), *gpus(1, lanes=0)))
    assert [world.place() for _ in range(7)] == [node] * 6 + [None]
    assert len(node.attempts) == 6


def test_alike_attempts_fill_the_devices_that_match_and_leave_the_others() -> None:
    world = World()
    mixed = (*gpus(1, lanes=1, model="NVIDIA H200"), *gpus(1, lanes=1, model="NVIDIA L4"))
    node = world.serving("n1", devices=mixed)
    h200 = Requirement("triton", "kernelbench", device_model="h200")
    assert [world.place(job(h200)) for _ in range(3)] == [node, node, None]
    assert [world.place(job()) for _ in range(3)] == [node, node, None]
    (attempt, *_) = node.attempts.values()
    world.fleet.detach(attempt)
    assert world.place(job(h200)) is node


def test_a_report_that_changes_what_is_offered_changes_placement_at_once() -> None:
    world = World()
    cuda = Requirement("cuda", "kernelbench", node_labels=frozenset({("zone", "a")}), min_devices=2)
    world.serving("n1")
    assert (world.choose(job(cuda)), world.fleet.offers.match(cuda)) == (None, False)
    both = frozenset({"triton", "cuda"})
    node = world.serving("n1", backends=both, labels=frozenset({("zone", "a"), ("rack", "7")}), devices=gpus(2))
    assert (world.choose(job(cuda)), world.fleet.offers.match(cuda)) == (node, True)
    world.serving("n1", backends=both, labels=frozenset({("zone", "a")}), devices=gpus(2, ready=False))
    assert (world.choose(job(cuda)), world.fleet.offers.match(cuda)) == (None, True), "offered, but not ready"
    world.serving("n1", backends=both, labels=frozenset({("zone", "b")}), devices=gpus(2))
    assert (world.choose(job(cuda)), world.fleet.offers.match(cuda)) == (None, False)


def test_a_hot_reference_attracts_until_the_node_is_too_much_busier_than_the_mean() -> None:
    world = World()
    nodes = [world.serving(f"n{i}", devices=gpus(2, lanes=4)) for i in range(4)]
    for node in nodes:
        for i in range(4):
            world.put(node, job(reference=f"{node.id}{i}".encode()))
    popular = job(reference=b"n20")
    spread = [world.place(job(reference=b"n20")) for _ in range(2)]
    assert spread == [nodes[2]] * 2, "up to 5/4 of the mean and one lane more"
    overflow = world.choose(popular)
    assert overflow is nodes[2], "6 attempts are no more than 5/4 of 18/4 and one"
    world.put(nodes[2], popular)
    assert world.place(popular) is nodes[0], "the least busy otherwise"
    assert world.place(popular) is nodes[0], "where it is hot now, too"


def test_a_hot_reference_lets_no_lane_stay_empty() -> None:
    world = World()
    nodes = [world.serving(f"n{i}", devices=gpus(1, lanes=4)) for i in range(2)]
    spread = [world.place() for _ in range(8)]
    assert spread[:2] == [nodes[0]] * 2
    assert [spread.count(node) for node in nodes] == [4, 4]


def test_a_reference_is_hot_elsewhere_where_the_job_might_soon_go() -> None:
    world = World()
    full, empty = world.serving("n1", devices=gpus(1, lanes=1)), world.serving("n2")
    one = job()
    assert not world.fleet.hot_elsewhere(one, empty, world.now)
    for _ in range(2):
        world.put(full)
    assert world.fleet.hot_elsewhere(one, empty, world.now)
    assert not world.fleet.hot_elsewhere(job(reference=b"cold"), empty, world.now)
    assert not world.fleet.hot_elsewhere(one, full, world.now), "it is hot here"
    one.unlucky_nodes.add("n1")
    assert not world.fleet.hot_elsewhere(one, empty, world.now)
    one.unlucky_nodes.clear()
    world.fleet.hold(full, world.now, 1.0)
    assert not world.fleet.hot_elsewhere(one, empty, world.now)
    world.now += 1
    world.fleet.disconnect(full)
    assert not world.fleet.hot_elsewhere(one, empty, world.now)
    world.fleet.connect(full)
    world.serving("n1", draining=True)
    assert not world.fleet.hot_elsewhere(one, empty, world.now)
    world.serving("n1", backends=frozenset({"cuda"}))
    assert not world.fleet.hot_elsewhere(one, empty, world.now)
    world.serving("n1")
    assert world.fleet.hot_elsewhere(one, empty, world.now)


def test_nodes_that_failed_a_job_come_last_even_when_the_others_are_busy() -> None:
    world = World()
    first, second = world.serving("n1", devices=gpus(1, lanes=1)), world.serving("n2", devices=gpus(1, lanes=1))
    world.put(second)
    again = job()
    again.unlucky_nodes.add("n1")
    assert world.place(again) is second
    assert world.choose(again) is first, "rather than to wait"


def test_two_jobs_on_their_last_try_do_not_share_a_node() -> None:
    world = World()
    nodes = {world.serving(name, devices=gpus(4)) for name in ("n1", "n2")}
    assert {world.place(job(crashes=2)) for _ in range(2)} == nodes
    assert world.place(job(crashes=2)) is None
    assert world.place(job(crashes=1)) is not None, "others are not kept away"
    node = min(nodes, key=lambda node: node.id)
    suspect = next(one for one in node.attempts.values() if one.job.crashes == 2)
    suspect.job.crashes = 3  # the count may rise before the attempt is detached
    world.fleet.detach(suspect)
    assert (node.last_try_attempts, world.place(job(crashes=2))) == (0, node)


def test_a_last_try_is_no_trial_of_a_node_in_quarantine_while_there_is_another() -> None:
    world = World()
    bad = world.serving("n1")
    for _ in range(3):
        world.fail(bad)
    world.now += 10
    good = world.serving("n2")
    world.put(good)
    assert world.choose(last_try=True) is good
    assert world.choose(job(reference=b"cold")) is bad, "others are"
    world.fleet.disconnect(good)
    assert world.choose(last_try=True) is bad


# Builds


def test_stages_are_those_of_the_contract() -> None:
    assert (STAGE_QUEUED, STAGE_BUILDING) == (evaluation_pb2.STAGE_QUEUED, evaluation_pb2.STAGE_BUILDING)


def test_builds_fill_the_builders_beside_full_lanes() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(1, lanes=2), builders=2)
    assert [world.place() for _ in range(4)] == [node] * 3 + [None]
    assert [world.place(job(BUILT)) for _ in range(3)] == [node] * 2 + [None]
    assert (node.building, node.load) == (2, (1.5, 2, "n1")), "builds take no lane"


def test_work_without_a_build_has_all_its_room_beside_builds() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(1, lanes=2), builders=4)
    assert [world.place(job(BUILT)) for _ in range(5)] == [node] * 4 + [None]
    assert [world.place() for _ in range(4)] == [node] * 3 + [None]


def test_without_builders_builds_take_the_room_of_the_lanes() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(1, lanes=2))
    assert [world.place(one) for one in (job(BUILT), job(), job(BUILT))] == [node] * 3
    assert (world.place(job(BUILT)), world.place(), node.building, node.load) == (None, None, 0, (1.5, 0, "n1"))


def test_a_finished_build_makes_room_for_the_next_and_the_node_never_has_more_than_both_rooms() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(1, lanes=1), builders=2)
    lanes = [world.put(node) for _ in range(2)]
    builds = [world.put(node, job(BUILT)) for _ in range(2)]
    world.move(builds[0], STAGE_BUILDING)
    world.move(builds[1], STAGE_QUEUED)
    assert node.building == 1
    assert world.choose(job(BUILT)) is None, "the built one waits for a lane: 4 attempts are all that the node takes"
    world.fleet.detach(lanes[0])
    assert world.choose() is node
    assert world.place(job(BUILT)) is node
    assert world.choose() is None
    world.move(builds[1], STAGE_PREPARING)
    world.fleet.detach(lanes[1])
    assert world.choose() is node, "one lane is taken, and one more attempt may wait for it"
    world.move(builds[0], STAGE_PREPARING)
    assert world.choose() is None


def test_builds_go_to_the_node_that_builds_least() -> None:
    world = World()
    nodes = [world.serving(f"n{i}", builders=4) for i in range(2)]
    assert [world.place(job(BUILT, reference=b"%d" % i)) for i in range(4)] == [nodes[0], nodes[1]] * 2
    assert world.place(job(reference=b"cold")) is nodes[0]


def test_builders_count_only_while_a_matching_device_is_ready_and_the_node_is_well() -> None:
    world = World()
    l4 = Requirement("triton", "kernelbench", device_model="l4", may_build=True)
    node = world.serving("n1", devices=gpus(1, lanes=1), builders=2)
    assert world.choose(job(l4)) is None
    world.serving("n1", devices=gpus(1, lanes=1, ready=False), builders=2)
    assert (world.choose(job(BUILT)), node.builders) == (None, 0)
    world.serving("n1", devices=gpus(1, lanes=1), builders=2)
    for _ in range(3):
        world.fail(node)
    world.now += 10
    assert world.place(job(BUILT)) is node
    assert (world.choose(job(BUILT)), world.choose()) == (None, None), "in quarantine it gets one at a time"


def test_a_report_changes_the_number_of_builders_at_once() -> None:
    world = World()
    node = world.serving("n1", devices=gpus(1, lanes=1))
    assert [world.place() for _ in range(2)] == [node] * 2
    assert world.choose(job(BUILT)) is None
    world.serving("n1", devices=gpus(1, lanes=1), builders=1)
    assert world.place(job(BUILT)) is node
    world.serving("n1", devices=gpus(1, lanes=1), builders=0)
    assert world.choose(job(BUILT)) is None


# What the nodes offer


def test_environments_are_those_of_matching_devices_of_live_nodes() -> None:
    world = World()
    h200 = Requirement("triton", "kernelbench", device_model="H200")
    world.serving("n1", devices=(*gpus(2), *gpus(1, model="NVIDIA L4")))
    other = world.serving("n2", environment=b"torch 2.9", devices=gpus(1, ready=False))
    assert world.fleet.offers.environments(h200) == {b"torch 2.8/NVIDIA H200", b"torch 2.9/NVIDIA H200"}
    assert world.fleet.offers.environments(NEED) == world.fleet.offers.environments(h200) | {b"torch 2.8/NVIDIA L4"}
    world.serving("n2", environment=b"torch 3.0")
    assert world.fleet.offers.environments(h200) == {b"torch 2.8/NVIDIA H200", b"torch 3.0/NVIDIA H200"}
    world.fleet.lose(other)
    assert world.fleet.offers.environments(h200) == {b"torch 2.8/NVIDIA H200"}


def test_an_environment_is_fingerprinted_once() -> None:
    asked: list[tuple[bytes, str]] = []

    def fingerprint(environment: bytes, model: str) -> bytes:
        asked.append((environment, model))
        return b"f"

    fleet = Fleet(2.0, 10.0, fingerprint)
    for i in range(50):
        fleet.update(report(f"n{i}", devices=gpus(8)), 0.0, 0.0)
        assert fleet.offers.environments(NEED) == {b"f"}
    assert asked == [(b"torch 2.8", "NVIDIA H200")]


# Comparison with a slow implementation of the same rules


def slow_choice(fleet: Fleet, one: Job, now: float, *, last_try: bool) -> Node | None:
    """Return the node that must get `one`. Use only what the nodes report and run."""
    need = one.spec.requirement

    def lanes(node: Node) -> int:
        return sum(d.lanes for d in node.report.devices if d.ready)

    def takes(node: Node) -> bool:
        ready = [d for d in node.report.devices if d.ready and d.lanes > 0]
        alike = [a for a in node.attempts.values() if a.job.spec.requirement == need]
        suspects = [a for a in node.attempts.values() if a.job.crashes >= 2]
        building = [a for a in node.attempts.values() if a.may_build and a.stage in (0, STAGE_BUILDING)]
        without_lane = [
            a for a in node.attempts.values() if a.may_build and a.stage in (0, STAGE_BUILDING, STAGE_QUEUED)
        ]
        room = sum(d.lanes + 1 for d in ready)
        alike_room = sum(d.lanes + 1 for d in ready if d.matches(need))
        builders = node.report.builders
        return (
            node.connected
            and node.held_until <= now
            and (node.state is NodeState.SERVING or (node.state is NodeState.QUARANTINED and not node.attempts))
            and node.offers(need)
            and len(node.attempts) < room + builders
            and len(alike) < alike_room + builders * need.may_build
            and min(room, alike_room) > 0
            and (
                len(building) < builders
                if builders and need.may_build
                else len(node.attempts) - len(without_lane) * (builders > 0) < room
            )
            and not (last_try and suspects)
        )

    places = [node for node in fleet.nodes.values() if takes(node)]
    if last_try and not all(node.quarantined_wall for node in places):
        places = [node for node in places if not node.quarantined_wall]
    if not places:
        return None
    mean = sum(len(node.attempts) for node in places) / sum(lanes(node) for node in places)

    def cost(node: Node) -> tuple[bool, bool, bool, float, int, str]:
        building = sum(a.may_build and a.stage in (0, STAGE_BUILDING) for a in node.attempts.values())
        building *= node.report.builders > 0
        busy = (len(node.attempts) - building) / lanes(node)
        attracted = one.spec.reference in node.hot and len(node.attempts) <= 1.25 * mean * lanes(node) + 1
        return node.id in one.unlucky_nodes, busy >= 1, not attracted, busy, building, node.id

    return min(places, key=cost)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_placement_is_what_the_rules_say(seed: int) -> None:
    dice = random.Random(seed)
    world = World()
    fleet = world.fleet
    needs = [
        NEED,
        BUILT,
        Requirement("cuda", "kernelbench", may_build=True),
        Requirement("cuda", "kernelbench", device_model="l4", may_build=True),
        Requirement("triton", "kernelbench", device_model="l4"),
        Requirement("triton", "kernelbench", node_labels=frozenset({("zone", "a")})),
        Requirement("triton", "kernelbench", profiling=True, min_devices=2),
    ]
    references = [bytes([i]) for i in range(6)]
    names = [f"n{i}" for i in range(8)]
    running: list[Attempt] = []
    placed = built = 0

    def any_node() -> Node | None:
        return fleet.nodes.get(dice.choice(names))

    def drop(attempts: list[Attempt]) -> None:
        for attempt in attempts:
            running.remove(attempt)
            fleet.detach(attempt)

    for _ in range(1000):
        world.now += dice.random()
        node = any_node()
        match dice.choices(range(9), (5, 1, 12, 8, 1, 1, 1, 1, 12))[0]:
            case 0:
                name, instance = dice.choice(names), str(dice.randrange(20) // 19)
                known = fleet.nodes.get(name)
                if known is not None and known.report.instance_id != instance:
                    drop(list(known.attempts.values()))
                kinds = dice.choice([gpus(2), gpus(1, lanes=4), (*gpus(1), *gpus(2, lanes=1, model="NVIDIA L4"))])
                devices = tuple(d if dice.random() < 0.9 else gpus(1, ready=False)[0] for d in kinds)
                changes: dict[str, Any] = {
                    "devices": devices,
                    "backends": frozenset(dice.choice([("triton",), ("triton", "cuda")])),
                    "labels": frozenset(dice.choice([(), (("zone", "a"),)])),
                    "profiling": dice.random() < 0.5,
                    "builders": dice.choice([0, 0, 1, 3]),
                    "draining": dice.random() < 0.05,
                }
                fleet.connect(fleet.update(report(name, instance, **changes), world.now, world.now))
            case 1 if node is not None:
                fleet.set_drained(node.id, dice.random() < 0.3)
            case 2:
                one = job(dice.choice(needs), dice.choice(references), dice.choice([0, 0, 0, 1, 2]))
                one.unlucky_nodes = set(dice.sample(names, dice.choice([0, 0, 2])))
                last_try = one.crashes >= 2
                chosen = fleet.choose(one, world.now, last_try=last_try)
                assert chosen is slow_choice(fleet, one, world.now, last_try=last_try)
                if chosen is not None:
                    placed += 1
                    built += one.spec.requirement.may_build
                    assert len(chosen.attempts) < chosen.room + chosen.builders
                    running.append(world.put(chosen, one))
            case 3 if running:
                attempt = dice.choice(running)
                drop([attempt])
                if dice.random() < 0.3:
                    fleet.failed(attempt.node, world.now, world.now)
                else:
                    fleet.succeeded(attempt.node)
            case 4 if node is not None:
                fleet.lose(node)
                drop(list(node.attempts.values()))
            case 5 if node is not None:
                (fleet.disconnect if dice.random() < 0.3 else fleet.connect)(node)
            case 6 if node is not None:
                fleet.hold(node, world.now, dice.choice([1.0, 5.0]))
            case 7 if node is not None:
                fleet.release(node)
            case 8 if running:
                world.move(dice.choice(running), dice.choice([STAGE_BUILDING, STAGE_QUEUED, STAGE_PREPARING]))
        for need in needs:
            assert fleet.offers.match(need) == any(other.offers(need) for other in fleet.live())
    assert min(placed, 2 * built) > 100, "the fleet must have had room for most of this to mean anything"
