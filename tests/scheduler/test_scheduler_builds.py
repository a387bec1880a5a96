"""Tests of how attempts that build native code and other attempts share a node, with the real queue."""

from __future__ import annotations

import pytest

from kerneldyno.scheduler.core.model import STAGE_BUILDING, STAGE_QUEUED, Attempt, ClientKind, Priority, Requirement
from kerneldyno.scheduler.service.translate import report_of, requirement_of, spec_of, submit_request_of
from kerneldyno.v1 import evaluation_pb2, fleet_service_pb2
from tests.scheduler.scheduler_harness import CORRECT, NEED, HeldJournal, World, outcome

pytestmark = pytest.mark.pure

#: Work that may have native code to build.
BUILT = Requirement("triton", "kernelbench", may_build=True)
STAGE_PREPARING = evaluation_pb2.STAGE_PREPARING


def tell(world: World, attempt: Attempt, stage: int) -> None:
    world.core.results.progress(attempt.token, stage, "cpu:0" if stage == STAGE_PREPARING else "")


class Line:
    """The waiting line of a node with two lanes, which gives them in order of arrival. Builds are over at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempts: list[Attempt] = []

    def turn(self) -> str:
        """Place what can be placed, and finish the first attempt; return its evaluation's id."""
        while placed := self.world.place():
            self.attempts += placed.values()
            for attempt in placed.values():
                tell(self.world, attempt, STAGE_BUILDING if attempt.may_build else STAGE_QUEUED)
            node = self.world.node("n")
            assert len(node.attempts) <= node.room + node.builders
            assert node.building <= node.builders
            for attempt in placed.values():
                tell(self.world, attempt, STAGE_QUEUED)
            for attempt in self.attempts[:2]:
                tell(self.world, attempt, STAGE_PREPARING)
        first = self.attempts.pop(0)
        assert self.world.core.results.complete(first.token, CORRECT)
        return self.world.log.done[-1].id


def test_work_without_a_build_passes_a_full_queue_of_builds() -> None:
    world = World()
    world.report("n", builders=2)
    for i in range(20):
        world.submit(f"b{i}", need=BUILT)
    assert list(world.place()) == ["b0", "b1"]
    world.pass_by(1.0, "n")
    for i in range(3):
        world.submit(f"t{i}", Priority.LOW)
    assert list(world.place()) == ["t0", "t1"], "a lane and one more"


def test_a_finished_build_lets_the_next_one_begin_at_once() -> None:
    world = World()
    world.report("n", builders=1)
    for i in range(3):
        world.submit(f"b{i}", need=BUILT)
    (first,) = world.place().values()
    tell(world, first, STAGE_BUILDING)
    assert world.place() == {}
    tell(world, first, STAGE_PREPARING)
    assert list(world.place()) == ["b1"]


def test_builds_and_other_work_take_turns_in_the_order_in_which_they_came() -> None:
    world = World()
    world.report("n", lanes=2, builders=1)
    for i in range(20):
        world.submit(f"b{i}", need=BUILT)
        world.submit(f"t{i}")
        world.clock.now += 0.1
        world.core.nodes.synchronize(world.node("n").report)
    line = Line(world)
    ran = [line.turn() for _ in range(40)]
    for kind in "bt":
        numbers = [int(name[1:]) for name in ran if name[0] == kind]
        assert numbers == list(range(20))
    places = {name: place for place, name in enumerate(ran)}
    assert all(abs(places[f"b{i}"] - places[f"t{i}"]) <= 4 for i in range(20)), ran


def test_neither_kind_takes_the_places_of_the_other() -> None:
    for first, second, most in ((NEED, BUILT, 3), (BUILT, NEED, 2)):
        world = World()
        world.report("n", lanes=2, builders=2)
        for i in range(20):
            world.submit(f"first{i}", Priority.HIGH, first)
        assert len(world.place()) == most
        world.submit("second", Priority.LOW, second)
        assert list(world.place()) == ["second"]


def test_without_builders_all_share_the_lanes() -> None:
    world = World()
    world.report("n", lanes=2)
    names = [f"b{i}" for i in range(3)]
    for name in names:
        world.submit(name, need=BUILT)
    world.submit("t")
    assert list(world.place()) == names
    assert world.node("n").building == 0


def test_a_build_of_a_lost_node_begins_again_elsewhere() -> None:
    world = World()
    world.report("n1", builders=1)
    one = world.submit("b0", need=BUILT)
    world.submit("b1", need=BUILT)
    (attempt,) = world.place().values()
    tell(world, attempt, STAGE_BUILDING)
    world.report("n2", builders=1)
    other = world.place()["b1"]
    assert other.node.id == "n2"
    world.core.nodes.lose(world.node("n1"), "it is gone")
    assert world.place() == {}, "the builder of the other node is busy"
    tell(world, other, STAGE_PREPARING)
    (again,) = world.place().values()
    assert (again.node.id, again.building, world.node("n1").building) == ("n2", True, 0)
    assert world.core.results.complete(again.token, CORRECT)
    assert outcome(one) == "CORRECT"


def test_after_a_restart_nodes_say_again_what_they_build() -> None:
    world = World()
    world.report("n", builders=1)
    world.submit("b0", need=BUILT)
    world.submit("b1", need=BUILT)
    (attempt,) = world.place().values()
    tell(world, attempt, STAGE_PREPARING)

    later = World(world.store, HeldJournal(world.store))
    later.core.recover(world.store.recover(), lambda payload: attempt.job.spec)
    later.report("n", builders=1, attempt_tokens=(attempt.token,))
    node = later.node("n")
    assert (list(node.attempts), node.building) == ([attempt.token], 1)
    assert later.place() == {}, "its only builder may be busy"
    later.core.results.progress(attempt.token, STAGE_PREPARING, "cpu:0")
    assert list(later.place()) == ["b1"]


def test_requests_say_whether_they_need_a_profile_and_a_gpu() -> None:
    request = evaluation_pb2.EvalRequest(id="a", reference_code="r", kernel_code="k")
    assert (requirement_of(request).profiling, requirement_of(request).device_kind) == (False, "")
    request.sanitize = evaluation_pb2.SANITIZE_ALL
    assert (requirement_of(request).profiling, requirement_of(request).device_kind) == (False, "cuda")
    request.profile_level = evaluation_pb2.PROFILE_LEVEL_COUNTERS
    submitted = submit_request_of(request, "c", ClientKind.STREAM)
    need = spec_of(submitted.spec.payload).requirement
    assert (need.profiling, need.device_kind) == (True, "cuda")


def test_requests_say_whether_they_may_need_a_build_and_reports_how_many_builders_there_are() -> None:
    request = evaluation_pb2.EvalRequest(id="a", backend="triton", reference_code="r", kernel_code="k")
    assert not requirement_of(request).may_build
    request.kernel_files.add(path="native.cu", content="// none")
    assert requirement_of(request).may_build
    submitted = submit_request_of(request, "c", ClientKind.STREAM)
    assert spec_of(submitted.spec.payload).requirement.may_build
    assert requirement_of(evaluation_pb2.EvalRequest(backend="cuda")).may_build
    for told, kept in ((3, 3), (0, 0), (-1, 0)):
        assert report_of(fleet_service_pb2.SynchronizeRequest(builders=told))[0].builders == kept
