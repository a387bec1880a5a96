"""The checker: it shows from a history that a run kept its promises, or names each broken promise with its evidence.

It is pure: it reads events (`history`) and does not know how they came about. Each rule is a function that yields
violations. `tests/chaos/test_checker.py` breaks every rule on purpose and checks that the violation is found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.history import Event

#: Errors after which a client may try again.
RETRYABLE = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED"})
#: Outcomes that are stored, and that answer later requests for the same work.
CACHEABLE = frozenset({"CORRECT", "INCORRECT", "COMPILE_ERROR", "RUNTIME_ERROR", "REJECTED"})


class Key(NamedTuple):
    """The identity of an evaluation."""

    client: str
    id: str


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    rule: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.text}"


@dataclass(slots=True)
class Record:
    """All events of one evaluation. Each list is in the order of time."""

    submits: list[Event] = field(default_factory=list)
    accepts: list[Event] = field(default_factory=list)
    results: list[Event] = field(default_factory=list)
    states: list[Event] = field(default_factory=list)

    @property
    def work(self) -> str:
        """The work that the evaluation asks for."""
        return str(self.submits[0]["work"]) if self.submits else ""


class Run:
    """A history, with its events by evaluation, by work and by attempt."""

    def __init__(self, events: Sequence[Event], max_attempts: int) -> None:
        self.events = events
        self.max_attempts = max_attempts
        self.records: defaultdict[Key, Record] = defaultdict(Record)
        self.starts: defaultdict[str, list[Event]] = defaultdict(list)
        self.started: dict[str, Event] = {}
        self.records_of_work: defaultdict[str, list[Record]] = defaultdict(list)
        for event in events:
            match event.op, event.kind:
                case "submit", "invoke":
                    self._record(event).submits.append(event)
                case "submit", "ok":
                    self._record(event).accepts.append(event)
                case "result", "ok":
                    self._record(event).results.append(event)
                case "state", "ok":
                    self._record(event).states.append(event)
                case "attempt", "invoke":
                    if event["token"] not in self.started:  # a repeated assignment is the same attempt
                        self.started[event["token"]] = event
                        self.starts[event["work"]].append(event)
        for record in self.records.values():
            if record.submits:
                self.records_of_work[record.work].append(record)

    def _record(self, event: Event) -> Record:
        return self.records[Key(event["client"], event["id"])]

    def runs_once(self, work: str) -> bool:
        """Return whether the scheduler has no reason to run `work` again once it has a result."""
        records = self.records_of_work[work]
        if any(submit.get("fresh") for record in records for submit in record.submits):
            return False
        outcomes = {result["outcome"] for record in records for result in record.results}
        return len(records) == 1 or outcomes <= CACHEABLE


Rule = Callable[[Run], Iterator[Violation]]


def check(events: Sequence[Event], *, max_attempts: int = 3) -> list[Violation]:
    """Return every broken promise of a finished run."""
    run = Run(events, max_attempts)
    return [violation for rule in RULES for violation in rule(run)]


def lost(run: Run) -> Iterator[Violation]:
    """Require that every accepted evaluation has an outcome at the end."""
    for key, record in run.records.items():
        if record.accepts and not record.results:
            yield Violation(
                "lost", str(key), f"accepted at {record.accepts[0].at:.3f}, and no reader ever saw a result"
            )


def forgotten(run: Run) -> Iterator[Violation]:
    """Require that an accepted evaluation stays known: every read that began after the acceptance finds it."""
    for key, record in run.records.items():
        for state in record.states:
            if not state["known"] and record.accepts and record.accepts[0].at < state["since"]:
                text = f"accepted at {record.accepts[0].at:.3f}, not known to {state['reader']} at {state.at:.3f}"
                yield Violation("forgotten", str(key), text)


def disagreement(run: Run) -> Iterator[Violation]:
    """Require one outcome for each evaluation, the same for every reader."""
    for key, record in run.records.items():
        seen: dict[str, Event] = {}
        for result in record.results:
            seen.setdefault(result["seen"], result)
        if len(seen) > 1:
            views = ", ".join(f"{r['reader']} saw {r['outcome']} by {r['token'] or 'nobody'}" for r in seen.values())
            yield Violation("disagreement", str(key), views)


def doubled(run: Run) -> Iterator[Violation]:
    """Require one evaluation for each id: one acceptance time, one place in a listing, one result on a stream."""
    for key, record in run.records.items():
        times = {event["accepted"] for event in (*record.states, *record.results) if event.get("accepted")}
        if len(times) > 1:
            yield Violation("doubled", str(key), f"accepted {len(times)} times")
        for place, events in (("listing", (*record.results, *record.states)), ("stream", record.results)):
            for number, count in Counter(event.get(place) for event in events).items():
                if number is not None and count > 1:
                    yield Violation("doubled", str(key), f"{count} times in {place} {number}")


def unasked(run: Run) -> Iterator[Violation]:
    """Require a submit before each acceptance and each result."""
    for key, record in run.records.items():
        heard = (*record.accepts, *record.results)
        first = min((event.at for event in heard), default=0.0)
        if heard and not (record.submits and record.submits[0].at <= first):
            yield Violation("unasked", str(key), "heard of before it was submitted")


def stale(run: Run) -> Iterator[Violation]:
    """Require that the deciding attempt ran this work, and was its last attempt if the work runs only once."""
    for key, record in run.records.items():
        deciding = {result["token"]: result for result in record.results if result["token"]}
        for token, result in deciding.items():
            start = run.started.get(token)
            if start is None or start["work"] != record.work:
                yield Violation("stale", str(key), f"decided by {token}, which never ran {record.work!r}")
                continue
            if not run.runs_once(record.work):
                continue
            for later in run.starts[record.work]:
                if later.at > start.at:
                    when = "already" if later.at < result.at else "afterwards"
                    text = f"decided by {token}, though {later['token']} was {when} started on {later['node']}"
                    yield Violation("stale", str(key), text)


def unmarked(run: Run) -> Iterator[Violation]:
    """Require that results of older attempts are marked as cached or merged, and that no cached result is a new one."""
    for key, record in run.records.items():
        for result in record.results[:1]:
            start = run.started.get(result["token"])
            if start is None or not record.submits:
                continue
            if start.at < record.submits[0].at and not (result["cached"] or result["merged"]):
                yield Violation(
                    "unmarked", str(key), f"{result['token']} was started before the submit, and no mark says so"
                )
            if result["cached"] and record.accepts and start.at > record.accepts[0].at:
                yield Violation("unmarked", str(key), f"cached, but {result['token']} was started for it")


def ran_too_often(run: Run) -> Iterator[Violation]:
    """Require at most `max_attempts` attempts for the work of one evaluation, and a result that counts them all."""
    for work, records in run.records_of_work.items():
        if len(records) != 1:
            continue
        starts = len(run.starts[work])
        if starts > run.max_attempts:
            yield Violation("ran_too_often", work, f"{starts} attempts were started")
        for result in records[0].results[:1]:
            if starts > result["attempts"]:
                yield Violation("ran_too_often", work, f"{starts} attempts ran, the result admits {result['attempts']}")


def backwards(run: Run) -> Iterator[Violation]:
    """Require that what is done stays done: a read that began after a result was seen does not find it unfinished."""
    for key, record in run.records.items():
        for state in record.states:
            if record.results and record.results[0].at < state["since"]:
                was = "unfinished" if state["known"] else "unknown"
                yield Violation(
                    "backwards", str(key), f"{was} to {state['reader']} after {record.results[0]['reader']}"
                )


def wrong(run: Run) -> Iterator[Violation]:
    """Require the verdict that the candidate's script asks for, whatever faults there were.

    Infrastructure may fail an evaluation, but only after all its attempts. Such a failure is never blamed on the
    candidate, and a candidate's own failure never becomes another outcome by a retry.
    """
    for key, record in run.records.items():
        if not record.submits:
            continue
        expected = record.submits[0]["expect"]
        for result in record.results[:1]:
            gave_up = result["outcome"] == "INFRASTRUCTURE_ERROR" and result["attempts"] >= run.max_attempts
            if result["outcome"] not in expected and not gave_up:
                text = f"{result['outcome']} after {result['attempts']} attempts, expected {' or '.join(expected)}"
                yield Violation("wrong", str(key), text)


def refused(run: Run) -> Iterator[Violation]:
    """Require that clients see only errors after which they may try again."""
    for event in run.events:
        if event.kind == "fail" and event.op in ("submit", "read") and event["code"] not in RETRYABLE:
            yield Violation("refused", str(event.get("client")), f"{event.op} ended in {event['code']}")


RULES: tuple[Rule, ...] = (
    *(lost, forgotten, disagreement, doubled, unasked),
    *(stale, unmarked, ran_too_often, backwards, wrong, refused),
)


class Totals(NamedTuple):
    """Counts for the report."""

    submitted: int
    accepted: int
    """Known to be taken by the scheduler: it said so, or there is a result."""
    finished: int
    gave_up: int
    """Ended by infrastructure."""
    attempts: int
    reruns: int
    """Attempts beyond the first of their work."""
    readings: int
    """Results seen, by all readers together."""


def totals(events: Iterable[Event]) -> Totals:
    """Count the evaluations, attempts and readings of a history."""
    run = Run(list(events), 0)
    records = run.records.values()
    first_results = [record.results[0] for record in records if record.results]
    return Totals(
        submitted=sum(1 for record in records if record.submits),
        accepted=sum(1 for record in records if record.accepts or record.results),
        finished=len(first_results),
        gave_up=sum(result["outcome"] == "INFRASTRUCTURE_ERROR" for result in first_results),
        attempts=len(run.started),
        reruns=sum(max(0, len(starts) - 1) for starts in run.starts.values()),
        readings=sum(len(record.results) for record in records),
    )
