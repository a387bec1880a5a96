"""Tests of the queue alone: turns of shares, weights, ageing, retries and counts."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from kerneldyno.scheduler.core.fair_queue import PATIENCE_SECONDS, FairQueue
from kerneldyno.scheduler.core.model import ClientKind, Job, Priority, Requirement, Spec

pytestmark = pytest.mark.pure

NEED = Requirement("triton", "kernelbench")
OTHER = Requirement("cuda", "kernelbench")

_names = itertools.count()


def job(
    share: str = "a",
    queued_at: float = 0.0,
    priority: Priority = Priority.NORMAL,
    need: Requirement = NEED,
    payload: bytes = b"p",
    reference: bytes = b"ref",
) -> Job:
    return Job(f"{share}{next(_names)}".encode(), Spec(need, reference, payload, 240.0), share, priority, queued_at)


def add(line: FairQueue, *shares: str) -> list[Job]:
    jobs = [job(share) for share in shares]
    for one in jobs:
        line.add(one)
    return jobs


def serve(line: FairQueue, turns: int) -> list[Job]:
    """Take jobs as `core` does while nodes have room."""
    served = []
    for _ in range(turns):
        head = line.heads()[0]
        line.take(head)
        served.append(head)
    return served


def order(line: FairQueue, turns: int) -> str:
    return "".join(one.share for one in serve(line, turns))


def test_a_share_alone_is_served_in_order_of_arrival() -> None:
    line = FairQueue()
    jobs = add(line, *"aaaa")
    assert serve(line, 4) == jobs


def test_a_flood_does_not_delay_the_others_by_more_than_a_turn() -> None:
    line = FairQueue()
    add(line, *"a" * 1000)
    assert order(line, 10) == "a" * 10
    for _ in range(50):  # a client with one job at a time: it sends the next one when that is placed
        (trickle,) = add(line, "b")
        assert trickle in serve(line, 2)


def test_one_that_asks_again_and_again_gets_no_more_than_its_turns() -> None:
    line = FairQueue()
    add(line, *"a" * 200)
    served: Counter[str] = Counter()
    for _ in range(100):
        if not line.waiting_of("b"):
            add(line, "b")
        served[order(line, 1)] += 1
    assert served == {"a": 50, "b": 50}, "an emptied share keeps no right to the next turn"


@pytest.mark.parametrize(("weight", "turns"), [(1.0, 60), (0.5, 40)])
def test_looking_at_the_heads_changes_no_turn(weight: float, turns: int) -> None:
    line = FairQueue()
    line.set_weight("b", weight)
    add(line, *"a" * 200)
    served: Counter[str] = Counter()
    for _ in range(120):
        if not line.waiting_of("b"):
            line.heads()  # b is idle, and its next turn has come
            add(line, "b")
        line.heads()
        served[order(line, 1)] += 1
    assert served == {"a": 120 - turns, "b": turns}


def test_a_share_cannot_give_up_its_turn_to_get_an_earlier_one() -> None:
    line = FairQueue()
    line.set_weight("b", 0.5)
    add(line, *"a" * 10, "b")
    assert order(line, 3) == "aba"
    line.heads()  # b's turn has come, but b has no job
    add(line, "b")
    assert order(line, 2) == "ab"


def test_a_share_that_was_idle_has_neither_credit_nor_debt() -> None:
    line = FairQueue()
    add(line, *"b" * 40, *"a" * 300)
    assert order(line, 80).count("b") == 40
    serve(line, 100)
    add(line, *"b" * 40)
    assert order(line, 20).count("b") == 10, "b wanted nothing for 100 turns, and had 40 before: neither counts"


@pytest.mark.parametrize(("weight", "part"), [(3.0, 0.75), (1.0, 0.5), (0.25, 0.2)])
def test_weights_divide_the_turns(weight: float, part: float) -> None:
    line = FairQueue()
    line.set_weight("a", weight)
    add(line, *"ab" * 1000)
    assert order(line, 1000).count("a") / 1000 == pytest.approx(part, rel=0.05)


def test_a_new_weight_counts_from_the_next_turn_on() -> None:
    line = FairQueue()
    add(line, *"ab" * 500)
    assert order(line, 100).count("a") == 50
    line.set_weight("a", 4.0)
    assert order(line, 100).count("a") == pytest.approx(80, abs=2)
    line.set_weight("a", 1.0)
    assert order(line, 100).count("a") == pytest.approx(50, abs=2)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_that_would_stop_a_share_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        FairQueue().set_weight("a", weight)


def test_retries_go_first_and_are_not_charged_twice() -> None:
    line = FairQueue()
    jobs = add(line, *"aaab")
    lost = serve(line, 3)
    assert [one.share for one in lost] == ["a", "b", "a"]
    for one in (lost[0], lost[2]):
        line.add(one, first=True)
    add(line, "b")
    assert serve(line, 2) == [jobs[0], jobs[1]], "in the order in which they came back"
    assert order(line, 2) == "ba", "and b's turn comes when it would have come without the loss"


def test_a_refused_job_is_the_next_again() -> None:
    line = FairQueue()
    add(line, *"abc" * 5)
    (refused,) = serve(line, 1)
    line.add(refused, first=True)
    assert serve(line, 1) == [refused]
    assert order(line, 5) == "bcabc", "and the turns go on from there"


def test_a_job_that_waits_for_a_node_of_its_own_holds_up_nobody() -> None:
    line = FairQueue()
    jobs = add(line, *"aaaaa")
    back = serve(line, 4)
    for crashes, one in zip((2, 2, 1, 0), back, strict=True):
        one.crashes = crashes
        line.add(one, first=True)
    assert line.heads() == [back[3], back[2], back[0], jobs[4]]
    line.take(back[0])
    assert line.heads() == [back[3], back[2], back[1], jobs[4]]
    line.take(jobs[4])
    for one in back[1:]:
        line.remove(one)
    assert (len(line), line.heads()) == (0, [])
    fresh, restored = add(line, "a", "b")
    line.remove(restored)
    restored.crashes = 1
    line.add(restored)
    assert line.heads() == [restored, fresh], "also when it came back before this process was started"


def test_cancelled_jobs_cost_their_share_nothing() -> None:
    line = FairQueue()
    jobs = add(line, *"a" * 10, *"b" * 10)
    for one in jobs[:9]:
        line.remove(one)
    assert serve(line, 2) == [jobs[9], jobs[10]]
    assert jobs[0] not in line


def test_priorities_go_first_until_others_have_waited_long_enough() -> None:
    line = FairQueue()
    low, normal, high = (
        job("a", 0.0, Priority.LOW),
        job("a", 0.0, Priority.NORMAL),
        job("a", 599.0, Priority.HIGH),
    )
    for one in (low, normal, high):
        line.add(one)
    assert line.heads() == [high, normal, low]
    line.take(high)
    late = job("a", 601.0, Priority.HIGH)
    line.add(late)
    assert line.heads() == [normal, late, low]


def test_an_old_job_makes_its_line_urgent_although_another_share_is_next() -> None:
    line = FairQueue()
    old = [job("flood", 0.0) for _ in range(3)]
    for one in old:
        line.add(one)
    serve(line, 1)
    young, high = job("late", 650.0), job("c", 620.0, Priority.HIGH)
    line.add(young)
    line.add(high)
    assert line.heads() == [young, high], "what is owed is the flood's age, and the turn is the late one's"
    for one in old[1:]:
        line.remove(one)
    assert line.heads() == [high, young]


def test_lines_of_different_requirements_do_not_wait_for_each_other() -> None:
    line = FairQueue()
    first, second = job("a", 1.0, need=OTHER), job("a", 2.0)
    line.add(second)
    line.add(first)
    assert line.heads() == [first, second]
    assert line.requirements() == {NEED, OTHER}
    assert list(line.waiting_for(OTHER)) == [first]
    line.remove(first)
    assert line.requirements() == {NEED}
    assert list(line.waiting_for(OTHER)) == []


def test_a_job_whose_reference_is_hot_may_go_instead_and_its_share_pays() -> None:
    line = FairQueue()
    for reference in (b"x", b"y"):
        for _ in range(4):
            line.add(job({b"x": "a", b"y": "b"}[reference], reference=reference))
    (head,) = line.heads()
    assert line.prefer_hot(head, {b"x": None}, 0.0) is head
    assert line.prefer_hot(head, {b"z": None}, 0.0) is head
    for _ in range(3):
        other = line.prefer_hot(head, {b"y": None, b"z": None}, 0.0)
        assert other.share == "b"
        line.take(other)
        assert line.heads() == [head]
    assert order(line, 4) == "aaab"


def test_of_those_that_may_go_instead_the_one_whose_turn_is_next_goes() -> None:
    line = FairQueue()
    (head,) = add(line, "a")
    early, late = job("b", reference=b"x"), job("c", reference=b"y")
    line.add(early)
    line.add(late)
    assert line.prefer_hot(head, [b"y", b"x"], 0.0) is early
    line.take(early)
    line.add(job("b", reference=b"x"))
    assert line.prefer_hot(head, [b"x", b"y"], 0.0) is late


def test_only_jobs_of_the_same_line_that_never_failed_go_instead() -> None:
    line = FairQueue()
    (head,) = add(line, "a")
    failed, refused = job("b", reference=b"hot"), job("b", reference=b"hot")
    failed.attempts = 1
    line.add(failed)
    others = [job("c", need=OTHER, reference=b"hot"), job("c", priority=Priority.LOW, reference=b"hot")]
    for one in (refused, *others):
        line.add(one)
    assert line.prefer_hot(head, {b"hot"}, 0.0) is refused
    line.take(refused)
    line.add(refused, first=True)
    assert line.heads()[0] is not head
    line.remove(refused)
    assert line.prefer_hot(head, {b"hot"}, 0.0) is head


@pytest.mark.parametrize("seed", range(10))
def test_no_job_is_passed_over_for_longer_than_its_patience(seed: int) -> None:
    dice = random.Random(seed)
    line = FairQueue()
    now, passed = 0.0, 0
    head_since: dict[Job, float] = {}
    for _ in range(2000):
        now += dice.expovariate(20)
        for _ in range(dice.choice([0, 1, 2])):
            line.add(job(dice.choice("abc"), now, reference=bytes([dice.randrange(8)])))
        if len(line):
            (head,) = line.heads()
            head_since.setdefault(head, now)
            hot = [bytes([i]) for i in range(8) if dice.random() < 0.2]
            chosen = line.prefer_hot(head, hot, now)
            if chosen is not head:
                passed += 1
                assert chosen.spec.reference in hot
                assert now - head_since[head] < PATIENCE_SECONDS
            line.take(chosen)
    assert passed > 200


def test_it_counts_what_waits() -> None:
    line = FairQueue()
    jobs = [job("a", payload=b"12345"), job("b", priority=Priority.HIGH), job("a", need=OTHER)]
    for one in jobs:
        line.add(one)
    assert (len(line), line.bytes, line.shares()) == (3, 7, {"a": 2, "b": 1})
    assert line.ages.depth == {(Priority.HIGH, ClientKind.RECOVERED): 1, (Priority.NORMAL, ClientKind.RECOVERED): 2}
    line.take(jobs[0])
    line.remove(jobs[1])
    assert (len(line), line.bytes, line.shares(), line.waiting_of("b")) == (1, 1, {"a": 1}, 0)
    assert jobs[2] in line
    assert jobs[0] not in line


@pytest.mark.parametrize("seed", range(20))
def test_whoever_waits_is_never_more_than_a_turn_behind(seed: int) -> None:
    """The bound of start-time fair queueing: the turns per weight of two waiting shares differ by at most one each."""
    dice = random.Random(seed)
    line = FairQueue()
    weights = {share: dice.choice([0.5, 1.0, 1.0, 1.0, 3.0]) for share in "abcdef"}
    for share, weight in weights.items():
        line.set_weight(share, weight)
    waiting: list[Job] = []
    taken: list[Job] = []
    gaps: dict[tuple[str, str], list[float]] = {}

    def note(served: Job) -> None:
        for pair in list(gaps):
            if served.share in pair:
                sign = 1 if served.share == pair[0] else -1
                gaps[pair].append(gaps[pair][-1] + sign / weights[served.share])
                low, high = min(gaps[pair]), max(gaps[pair])
                assert high - low <= 1 / weights[pair[0]] + 1 / weights[pair[1]] + 1e-9, pair

    for _ in range(3000):
        match dice.randrange(8):
            case 0 | 1 | 2 | 3:
                one = job(dice.choice("aaaaabcdef"))
                line.add(one)
                waiting.append(one)
            case 4 | 5 | 6 if waiting:
                (one,) = serve(line, 1)
                waiting.remove(one)
                if one in taken:
                    taken.remove(one)  # a retry: it was charged when it was first taken
                else:
                    note(one)
                    if dice.random() < 0.1:
                        taken.append(one)
                        line.add(one, first=True)
                        waiting.append(one)
            case 7 if waiting and dice.random() < 0.3:
                one = waiting.pop(dice.randrange(len(waiting)))
                taken = [other for other in taken if other is not one]
                line.remove(one)
        assert len(line) == len(waiting)
        busy = {share for share, depth in line.shares().items() if depth}
        for pair in list(gaps):
            if not set(pair) <= busy:
                del gaps[pair]
        for pair in itertools.combinations(sorted(busy), 2):
            gaps.setdefault(pair, [0.0])
    while waiting:
        (one,) = serve(line, 1)
        waiting.remove(one)
    assert (len(line), line.bytes, line.heads(), line.shares()) == (0, 0, [], {})


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_and_goes_while_a_line_stands_still_leaves_nothing_behind(seed: int) -> None:
    """A line may have no node for days, and clients choose the names of shares."""
    dice = random.Random(seed)
    line = FairQueue()
    (stuck,) = add(line, "stuck")
    for i in range(5000):
        one = job(f"client {i}")
        line.add(one, first=dice.random() < 0.5)
        line.remove(one)
    assert line.heads() == [stuck]
    (inner,) = line._subqueues.values()
    assert len(inner._turns) < 200
    assert len(inner._oldest) < 200
    assert len(inner._flows) == 1
