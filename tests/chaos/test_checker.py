"""Tests of the checker on correct histories, and on the same histories with one broken promise, for many seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import RULES, check, totals
from tests.chaos.history import Event, History, read

pytestmark = pytest.mark.pure

SEEDS = range(8)
OUTCOMES = ("CORRECT", "INCORRECT", "TIMEOUT")


class Story:
    """The made-up history of a run that kept every promise."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.events: list[Event] = []
        self.now = 100.0
        self.tokens = 0
        for number in range(30):
            self.evaluation(f"c{number % 3}", f"e{number}", f"w{number}")
        for number in range(3):  # the same work twice: the store answers the second time
            outcome, token = self.evaluation("c0", f"first{number}", f"shared{number}", outcome="CORRECT")
            self.evaluation("c1", f"second{number}", f"shared{number}", outcome=outcome, cached_from=token)

    def add(self, op: str, kind: str, **fields: Any) -> Event:
        self.now += self.random.uniform(0.001, 0.1)
        self.events.append(Event(self.now, op, kind, fields))
        return self.events[-1]

    def evaluation(self, client: str, id: str, work: str, outcome: str = "", cached_from: str = "") -> tuple[str, str]:
        """Submit, try up to three times, and let every kind of reader read the result."""
        outcome = outcome or self.random.choice(OUTCOMES)
        name = {"client": client, "id": id}
        self.add("submit", "invoke", **name, work=work, expect=[outcome], fresh=False)
        accepted = self.add("submit", "ok", **name, stream=1).at
        self.add("state", "ok", **name, reader="get", since=self.now + 1e-4, accepted=accepted, known=True, attempts=0)
        token, attempts = cached_from, 0
        while not cached_from:
            self.tokens += 1
            attempts += 1
            token = f"t{self.tokens}"
            self.add("attempt", "invoke", node=f"n{attempts}", instance="i", token=token, work=work)
            if attempts == 3 or self.random.random() < 0.7:
                break
        gave_up = attempts == 3 and self.random.random() < 0.3
        if gave_up:
            outcome, token = "INFRASTRUCTURE_ERROR", ""
        else:
            self.add("attempt", "ok", node=f"n{attempts}", instance="i", token=token, work=work, outcome=outcome)
        facts = {
            "outcome": outcome,
            "token": token,
            "attempts": attempts,
            "accepted": accepted,
            "seen": f"{id} {token}",
        }
        marks = {"cached": bool(cached_from), "merged": False}
        for reader, more in (
            ("stream", {"stream": 1}),
            ("get", {}),
            ("list", {"listing": 1}),
            ("attach", {"stream": 2}),
        ):
            self.add("result", "ok", **name, reader=reader, since=self.now, **facts, **marks, **more)
        self.add("read", "fail", client=client, id=id, reader="get", code="UNAVAILABLE")
        return outcome, token

    def pick(self, op: str, kind: str, **fields: Any) -> int:
        """Return the index of a random event that matches."""
        found = [
            index
            for index, event in enumerate(self.events)
            if (event.op, event.kind) == (op, kind) and all(event.get(k) == v for k, v in fields.items())
        ]
        return self.random.choice(found)

    def of(self, index: int, op: str) -> list[int]:
        """Return the indices of the events `op` of the same evaluation."""
        event = self.events[index]
        return [
            i
            for i, e in enumerate(self.events)
            if e.op == op and (e.get("client"), e.get("id")) == (event["client"], event["id"])
        ]

    def change(self, index: int, **fields: Any) -> None:
        event = self.events[index]
        self.events[index] = replace(event, fields={**event.fields, **fields})

    def sorted(self) -> list[Event]:
        return sorted(self.events, key=lambda event: event.at)


def _a_result(story: Story, **fields: Any) -> int:
    """Return the index of a result on a stream. An attempt decided it, and no other evaluation shares its work."""
    while True:
        index = story.pick("result", "ok", reader="stream", cached=False, **fields)
        if story.events[index]["token"] and story.events[index]["id"].startswith("e"):
            return index


def lose_it(story: Story) -> None:
    index = _a_result(story)
    gone = {*story.of(index, "result"), *story.of(index, "state")}
    story.events = [event for i, event in enumerate(story.events) if i not in gone]


def forget_it(story: Story) -> None:
    index = story.pick("state", "ok")
    story.change(index, known=False, accepted=None)


def two_outcomes(story: Story) -> None:
    story.change(story.of(_a_result(story), "result")[-1], outcome="REJECTED", seen="something else")


def accepted_twice(story: Story) -> None:
    story.change(story.of(_a_result(story), "result")[1], accepted=1.0)


def listed_twice(story: Story) -> None:
    listed = story.of(_a_result(story), "result")[2]
    story.events.insert(listed, story.events[listed])


def sent_twice(story: Story) -> None:
    index = _a_result(story)
    story.events.insert(index, story.events[index])


def never_asked_for(story: Story) -> None:
    index = _a_result(story)
    for i in story.of(index, "submit"):
        story.change(i, id=f"another{i}")


def decided_by_nobody(story: Story) -> None:
    for i in story.of(_a_result(story), "result"):
        story.change(i, token="t-invented")


def decided_by_another_work(story: Story) -> None:
    other = story.events[_a_result(story)]["token"]
    for i in story.of(story.pick("result", "ok", reader="stream", cached=True), "result"):
        story.change(i, token=other)


def decided_by_a_superseded_attempt(story: Story) -> None:
    result = story.events[_a_result(story)]
    start = story.events[story.pick("attempt", "invoke", token=result["token"])]
    later = replace(start, at=start.at + 1e-6, fields={**start.fields, "token": "t-later", "node": "n9"})
    story.events.append(later)
    for i in story.of(story.events.index(result), "result"):
        story.change(i, attempts=3)


def ran_again_after_it_was_done(story: Story) -> None:
    result = story.events[_a_result(story, attempts=1)]
    start = story.events[story.pick("attempt", "invoke", token=result["token"])]
    story.events.append(replace(start, at=story.now + 1, fields={**start.fields, "token": "t-again", "node": "n9"}))


def a_stored_result_passed_off_as_new(story: Story) -> None:
    for i in story.of(story.pick("result", "ok", reader="stream", cached=True), "result"):
        story.change(i, cached=False)


def a_new_result_passed_off_as_stored(story: Story) -> None:
    for i in story.of(_a_result(story), "result"):
        story.change(i, cached=True)


def four_attempts(story: Story) -> None:
    result = story.events[_a_result(story)]
    start = story.events[story.pick("attempt", "invoke", token=result["token"])]
    for number in range(3):
        earlier = replace(start, at=start.at - 1e-6, fields={**start.fields, "token": f"t-{number}"})
        story.events.append(earlier)


def undone(story: Story) -> None:
    result = story.events[_a_result(story)]
    fields = {"reader": "get", "since": story.now + 1, "accepted": result["accepted"], "known": True, "attempts": 1}
    name = {"client": result["client"], "id": result["id"]}
    story.events.append(Event(story.now + 2, "state", "ok", {**name, **fields}))


def wrong_verdict(story: Story) -> None:
    for i in story.of(_a_result(story, outcome="CORRECT"), "result"):
        story.change(i, outcome="INCORRECT")


def gave_up_too_early(story: Story) -> None:
    for i in story.of(_a_result(story, attempts=1), "result"):
        story.change(i, outcome="INFRASTRUCTURE_ERROR")


def final_error(story: Story) -> None:
    story.change(story.pick("read", "fail"), code="INTERNAL")


BREAKS: list[tuple[Callable[[Story], None], str]] = [
    (lose_it, "lost"),
    (forget_it, "forgotten"),
    (two_outcomes, "disagreement"),
    (accepted_twice, "doubled"),
    (listed_twice, "doubled"),
    (sent_twice, "doubled"),
    (never_asked_for, "unasked"),
    (decided_by_nobody, "stale"),
    (decided_by_another_work, "stale"),
    (decided_by_a_superseded_attempt, "stale"),
    (ran_again_after_it_was_done, "stale"),
    (a_stored_result_passed_off_as_new, "unmarked"),
    (a_new_result_passed_off_as_stored, "unmarked"),
    (four_attempts, "ran_too_often"),
    (undone, "backwards"),
    (wrong_verdict, "wrong"),
    (gave_up_too_early, "wrong"),
    (final_error, "refused"),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_that_kept_its_promises_is_clean(seed: int) -> None:
    story = Story(seed)
    assert check(story.sorted()) == []
    counted = totals(story.sorted())
    assert counted.submitted == counted.accepted == counted.finished == 36
    assert counted.attempts - counted.reruns == 33, "the shared works ran once each"


@pytest.mark.parametrize(("break_it", "rule"), BREAKS, ids=[breaks.__name__ for breaks, _ in BREAKS])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_kind_of_violation_is_found(seed: int, break_it: Callable[[Story], None], rule: str) -> None:
    story = Story(seed)
    break_it(story)
    found = check(story.sorted())
    assert rule in {violation.rule for violation in found}, found
    assert all(violation.subject and violation.text for violation in found)


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule.__name__ for rule in RULES} == {rule for _, rule in BREAKS}


def test_the_log_survives_several_writers_and_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with History(path, client="c1") as first, History(path, node="n1") as second:
        first.note("submit", "invoke", id="a", work="w", expect=["CORRECT"], fresh=False)
        second.note("attempt", "invoke", token="t", work="w")
        first.note("submit", "ok", id="a", stream=1)
    with path.open("a") as file:
        file.write('{"at": 1, "op": "resu')  # its writer was killed
    events = read([path])
    assert [(e.op, e.get("client"), e.get("node")) for e in events] == [
        ("submit", "c1", None),
        ("attempt", None, "n1"),
        ("submit", "c1", None),
    ]
    assert [violation.rule for violation in check(events)] == ["lost"]
