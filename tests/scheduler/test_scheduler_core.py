"""The state machine alone, on a clock that moves when told: leases, fencing, order, ageing, retries, bounds."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from kerneldyno.scheduler.core import Core, Observer, Submission
from kerneldyno.scheduler.model import (
    Attempt,
    Device,
    Evaluation,
    Key,
    NodeState,
    Priority,
    Report,
    Requirement,
    Spec,
    Verdict,
)
from kerneldyno.scheduler.settings import Settings

CORRECT = Verdict("CORRECT", b"payload")
NEED = Requirement("triton", "kernelbench")


class FakeClock:
    """Time stands still between calls of `pass_by`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1e9


class World:
    """A state machine with helpers; also the observer and the watcher of everything."""

    def __init__(self, **changes: Any) -> None:
        self.clock = FakeClock()
        tokens = (f"t{i}" for i in itertools.count())
        self.core = Core(Settings(**changes), self.clock, lambda: next(tokens))
        self.log = Log()
        self.core.observers.append(self.log)

    def submit(
        self, name: str, priority: Priority = Priority.NORMAL, need: Requirement = NEED, **spec: Any
    ) -> Evaluation:
        full = Spec(need, priority, spec.get("reference", b"ref"), spec.get("payload", b"p"), 240.0)
        assert self.core.submit(Key("c", name), name.encode(), full, {}) is Submission.NEW
        evaluation = self.core.get(Key("c", name))
        assert evaluation is not None
        return evaluation

    def report(self, node_id: str, lanes: int = 1, **changes: Any) -> list[str] | None:
        fields: dict[str, Any] = {
            "instance_id": "i",
            "address": f"{node_id}:1",
            "draining": False,
            "devices": (Device("cpu:0", "cpu", "CPU", 1 << 30, lanes, True),),
            "backends": frozenset({"triton"}),
            "toolkits": frozenset({"kernelbench"}),
        }
        return self.core.synchronize(Report(node_id=node_id, **(fields | changes)))

    def pass_by(self, seconds: float, *reporting: str) -> None:
        """Let time pass in ticks, while `reporting` nodes go on reporting."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 1.0
            for node_id in reporting:
                self.report(node_id)
            self.core.tick()

    def placed(self) -> dict[str, str]:
        """Place, and return which evaluation went where."""
        return {attempt.evaluation.key.id: attempt.node.id for attempt in self.core.place()}


class Log(Observer):
    def __init__(self) -> None:
        self.dropped: list[tuple[str, bool]] = []
        self.retries: list[str] = []
        self.stale: list[str] = []
        self.lost: list[str] = []

    def attempt_dropped(self, attempt: Attempt, *, node_lost: bool) -> None:
        self.dropped.append((attempt.token, node_lost))

    def retried(self, evaluation: Evaluation, cause: str) -> None:
        self.retries.append(cause)

    def stale_completion(self, token: str) -> None:
        self.stale.append(token)

    def lease_expired(self, node: Any) -> None:
        self.lost.append(node.id)


def outcome(evaluation: Evaluation) -> str | None:
    return evaluation.verdict.outcome if evaluation.verdict else None


def test_only_the_attempt_with_the_current_token_decides() -> None:
    world = World()
    evaluation = world.submit("a")
    world.report("n1")
    (first,) = world.core.place()
    world.pass_by(12)
    assert world.log.lost == ["n1"]
    assert world.log.retries == ["NODE_LOST"]
    world.report("n2")
    (second,) = world.core.place()
    assert not world.core.complete(first.token, Verdict("INCORRECT"))
    assert outcome(evaluation) is None
    assert world.core.complete(second.token, CORRECT)
    assert not world.core.complete(second.token, Verdict("INCORRECT")), "an outcome is decided once"
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
    world.pass_by(700)
    assert world.core.fleet.nodes == {}, "nodes long gone are forgotten"


def test_a_scheduler_that_was_stopped_blames_nobody() -> None:
    world = World()
    world.report("n1")
    world.clock.now += 300  # as after SIGSTOP and SIGCONT
    world.core.tick()
    assert world.core.fleet.live()
    world.pass_by(9)
    assert world.core.fleet.live()
    world.pass_by(3)
    assert not world.core.fleet.live()


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
        for attempt in world.core.place():
            order.append(attempt.evaluation.key.id)
            world.core.complete(attempt.token, CORRECT)
    assert order == ["old-normal", "high", "normal", "normal-2", "low"]


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


def test_a_hot_reference_attracts_until_the_node_is_busier_than_others() -> None:
    world = World()
    for node_id in ("n1", "n2"):
        world.report(node_id, lanes=4)
    for i in range(8):
        world.submit(f"r{i}", reference=b"same")
    spread = [attempt.node.id for attempt in world.core.place()]
    assert spread[:2] == ["n1", "n1"], "the reference is hot there"
    assert spread.count("n1") == spread.count("n2") == 4, "but no lane stays empty for it"


def test_a_retry_prefers_another_node_and_ends_after_three() -> None:
    world = World()
    world.report("n1", lanes=4)
    world.report("n2")
    evaluation = world.submit("a")
    seen = []
    for _ in range(3):
        world.pass_by(31, "n1", "n2")
        (attempt,) = world.core.place()
        seen.append(attempt.node.id)
        world.core.complete(attempt.token, Verdict.failed("JUDGE_DIED", "x", retryable=True))
    assert seen[:2] in (["n1", "n2"], ["n2", "n1"])
    assert (outcome(evaluation), evaluation.attempts) == ("INFRASTRUCTURE_ERROR", 3)
    assert world.log.retries == ["JUDGE_DIED"] * 2


def test_a_node_that_fails_is_left_alone_for_longer_each_time() -> None:
    world = World()
    pauses = []
    for i in range(4):
        world.report("n1")
        world.submit(f"r{i}")
        start = world.clock.now
        while not (placed := world.core.place()):
            world.pass_by(1, "n1")
        pauses.append(world.clock.now - start)
        world.core.complete(placed[0].token, Verdict.failed("JUDGE_DIED", "x", retryable=False))
        if i < 3:
            world.core.fleet.hold(world.core.fleet.nodes["n1"], world.clock.now)
    assert pauses == [0, 1, 1, 1], "a verdict, even a failed one, ends the row"


def test_a_refusal_is_no_attempt_and_keeps_the_place_in_line() -> None:
    world = World()
    world.report("n1")
    first = world.submit("first")
    (attempt,) = world.core.place()
    world.submit("second")
    world.core.refuse(attempt.token, 2.0)
    assert (first.attempts, world.placed()) == (0, {})
    world.pass_by(3, "n1")
    assert next(iter(world.placed())) == "first"


def test_the_line_is_bounded_in_number_and_bytes() -> None:
    world = World(max_queued=2, max_queued_bytes=100)
    world.submit("a")
    world.submit("b")
    spec = Spec(NEED, Priority.NORMAL, b"", b"p", 1.0)
    assert world.core.submit(Key("c", "c"), b"f", spec, {}) is Submission.FULL
    assert world.core.submit(Key("c", "a"), b"a", spec, {}) is Submission.SAME, "known ids are no new work"
    assert world.core.submit(Key("c", "a"), b"other", spec, {}) is Submission.REUSED
    for name in "ab":
        world.core.cancel(world.core.get(Key("c", name)) or pytest.fail("it is known"))
    world.submit("large", payload=b"x" * 200)
    assert not world.core.has_room()


def test_results_owed_to_a_watcher_outlive_the_bound() -> None:
    class Reader:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def evaluation_done(self, evaluation: Evaluation) -> None:
            self.seen.append(evaluation.key.id)

    world = World(retain_results=2)
    reader = Reader()
    owed = world.submit("owed")
    world.core.watch(owed, reader)
    world.core.cancel(owed)
    for i in range(5):
        world.core.cancel(world.submit(f"r{i}"))
    assert reader.seen == ["owed"]
    assert world.core.get(Key("c", "owed")) is owed
    assert world.core.get(Key("c", "r4"))
    assert not world.core.get(Key("c", "r3"))
    world.core.unwatch(owed, reader)
    world.core.cancel(world.submit("later"))
    world.core.cancel(world.submit("last"))
    assert world.core.get(Key("c", "owed")) is None


def test_work_that_matches_no_node_fails_after_the_limit_but_not_while_one_matches() -> None:
    world = World(unmatched_seconds=100)
    waiting = world.submit("a", need=Requirement("triton", "kernelbench", device_kind="cuda"))
    world.report("n1", lanes=1)
    world.pass_by(60, "n1")
    world.report("gpu", devices=(Device("cuda:0", "cuda", "H200", 1, 1, False),))
    world.core.tick()
    assert world.placed() == {}, "its device is not ready"
    world.pass_by(12, "n1")  # and the node is lost again
    world.pass_by(90, "n1")
    assert outcome(waiting) is None, "the wait begins anew when a match is lost"
    world.pass_by(20, "n1")
    assert waiting.verdict is not None
    assert waiting.verdict.failure is not None
    assert waiting.verdict.failure.cause == "NO_MATCHING_DEVICE"


def test_a_restarted_node_takes_over_its_name_and_its_attempts_run_again() -> None:
    world = World()
    world.report("n1")
    evaluation = world.submit("a")
    (attempt,) = world.core.place()
    assert world.report("n1", instance_id="twin", address="elsewhere:1") is None
    assert evaluation.attempt is attempt
    assert world.report("n1", instance_id="restart") == []
    assert world.log.dropped == [(attempt.token, True)]
    assert world.placed() == {"a": "n1"}
    world.pass_by(6)
    assert world.report("n1", instance_id="moved", address="elsewhere:1") == [], "its predecessor has fallen silent"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_evaluation_ends_exactly_once(seed: int) -> None:
    dice = random.Random(seed)
    world = World(max_queued=50, unmatched_seconds=1e9)
    ended: list[Key] = []

    class Ends(Observer):
        def finished(self, evaluation: Evaluation, seconds: float | None) -> None:
            ended.append(evaluation.key)

    world.core.observers.append(Ends())
    tokens: list[str] = []
    submitted: list[Key] = []
    names = [f"n{i}" for i in range(4)]
    for step in range(400):
        match dice.randrange(8):
            case 0 | 1 if world.core.has_room():
                submitted.append(world.submit(f"s{step}", dice.choice(list(Priority))).key)
            case 2:
                world.report(dice.choice(names), lanes=dice.randrange(1, 4), instance_id=str(dice.randrange(2)))
            case 3:
                world.pass_by(dice.choice([1, 3, 12]), *dice.sample(names, 2))
            case 4 if tokens:
                world.core.complete(dice.choice(tokens), CORRECT)
            case 5 if tokens:
                world.core.complete(dice.choice(tokens), Verdict.failed("JUDGE_DIED", "x", retryable=True))
            case 6 if tokens:
                world.core.refuse(dice.choice(tokens), 1.0)
            case 7 if submitted and (known := world.core.get(dice.choice(submitted))) and dice.random() < 0.3:
                world.core.cancel(known)
        tokens += [attempt.token for attempt in world.core.place()]
        evaluations = [world.core.get(key) for key in submitted]
        assert all(e is not None and e.attempts <= 3 for e in evaluations)
        done = sum(1 for e in evaluations if e and e.verdict)
        assert done + world.core.running() + len(world.core.waiting) == len(submitted)
        assert sum(world.core.waiting.depth.values()) == len(world.core.waiting) >= 0
    for _ in range(300):
        for token in [*tokens]:
            world.core.complete(token, CORRECT)
        world.pass_by(1, *names)
        tokens = [attempt.token for attempt in world.core.place()]
    assert sorted(ended) == sorted(submitted)
