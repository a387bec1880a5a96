"""Tests of the state machine with its store and a journal that a crash cuts off anywhere. A naive model checks it.

Simulated nodes keep to the contract: they hold tokens, keep results until acknowledged, go silent, die, and come back
with what they hold. The journal writes only when told to, so that every decision may be lost before it is on disk. The
model remembers what was told to clients, and that must stay true.

KERNELDYNO_STATE_MACHINE_EXAMPLES=5000 tries more and other histories (`--hypothesis-seed=N` says which).
"""

from __future__ import annotations

import itertools
import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.model import (
    STAGE_BUILDING,
    STAGE_QUEUED,
    STAGE_UNKNOWN,
    Attempt,
    ClientKind,
    Device,
    Evaluation,
    Job,
    Key,
    Node,
    NodeState,
    Priority,
    Report,
    Requirement,
    Spec,
    SubmitRequest,
    SubmitStatus,
    Verdict,
)
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import Store
from kerneldyno.scheduler.core.queue_ages import JobClass
from kerneldyno.scheduler.core.records import Finished, Placed, Quarantined, Record, Returned
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.store.memory import MemoryStore
from tests import sampling

pytestmark = pytest.mark.pure

EXAMPLES = int(os.environ.get("KERNELDYNO_STATE_MACHINE_EXAMPLES", "0"))
STEP_SECONDS = 2.0  # less than half a heartbeat; a longer step means that the scheduler was asleep
LIMITS = Settings(
    heartbeat_seconds=5.0,
    lease_seconds=10.0,
    max_queued=14,
    max_queued_per_client=9,
    client_grace_seconds=40.0,
    unmatched_seconds=1e9,
)
ENVIRONMENT = b"environment"
NEED = Requirement("triton", "kernelbench")
#: What the last two works need: they may have native code to build.
BUILT = Requirement("triton", "kernelbench", may_build=True)
STAGE_PREPARING = 2
#: The outcome of each work if nothing goes wrong. The store never answers for the third, TIMEOUT.
WORKS = ("CORRECT", "INCORRECT", "TIMEOUT", "RUNTIME_ERROR", "CORRECT")
NODES = ("n1", "n2", "n3")
#: How many builders each node has.
BUILDERS = {"n1": 0, "n2": 1, "n3": 2}
pick = st.integers(0, 10_000)
submits = st.tuples(
    st.sampled_from(["a/1", "a/2", "b"]),  # client
    st.integers(0, 40),  # the evaluation's number
    st.integers(0, len(WORKS) - 1),
    st.sampled_from(Priority),
    st.sampled_from([False, False, False, True]),  # whether it needs a fresh run
    st.sampled_from([None, None, None, 4.0, 30.0]),  # timeout in seconds
)


@dataclass
class Clock:
    """A clock that moves when told to."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1.7e9


class HeldJournal:
    """A journal that writes when told to. A crash loses the rest."""

    def __init__(self, store: Store, kept: Callable[[Record], None]) -> None:
        self._store = store
        self._kept = kept
        self._appended = self._committed = 0
        self.pending: deque[Record] = deque()
        self._calls: deque[tuple[int, Callable[[], object]]] = deque()

    def append(self, record: Record) -> None:
        self.pending.append(record)
        self._appended += 1

    def after_commit(self, call: Callable[[], object]) -> None:
        self._calls.append((self._appended, call))
        self._make_calls()

    def has_room(self) -> bool:
        return True

    def commit(self, most: int) -> None:
        batch = [self.pending.popleft() for _ in range(min(most, len(self.pending)))]
        if batch:
            self._store.write(batch)
            for record in batch:
                self._kept(record)
            self._committed += len(batch)
            self._make_calls()

    def _make_calls(self) -> None:
        while self._calls and self._calls[0][0] <= self._committed:
            self._calls.popleft()[1]()


@dataclass(eq=False)
class Held:
    """An attempt on a node, with its result once there is one."""

    token: str
    work: int
    verdict: Verdict | None = None


@dataclass(eq=False)
class FakeNode:
    """The state of one evaluator, and the attempts that it holds."""

    id: str
    instance: int = 0
    connected: bool = False
    held: dict[str, Held] = field(default_factory=dict)

    def report(self) -> Report:
        return Report(
            node_id=self.id,
            instance_id=f"{self.id}-{self.instance}",
            address=f"{self.id}:1",
            devices=(Device("cpu:0", "cpu", "CPU", 1 << 30, 2, True),),
            backends=frozenset({"triton"}),
            toolkits=frozenset({"kernelbench"}),
            attempt_tokens=tuple(self.held),
            builders=BUILDERS[self.id],
        )


def outcome_of(verdict: Verdict) -> tuple[Any, ...]:
    """Return what a reader is told. The payload names the attempt that decided."""
    return verdict.outcome, verdict.payload, verdict.failure and verdict.failure.cause, verdict.cached


def spec_of(payload: bytes) -> Spec:
    need = BUILT if payload[0] >= len(WORKS) - 2 else NEED
    return Spec(need, b"reference", payload, limit_seconds=240.0)


def takes(node: Node, *, may_build: bool) -> bool:
    """Return whether a node takes an attempt, counted naively. Nodes have one device with two lanes."""
    running = list(node.attempts.values())
    if not node.connected or node.state is NodeState.QUARANTINED:
        return node.connected and not running
    if node.state is not NodeState.SERVING or len(running) >= 3 + BUILDERS[node.id]:
        return False
    builds = [a for a in running if a.job.spec.requirement.may_build and BUILDERS[node.id]]
    if may_build and BUILDERS[node.id]:
        return sum(a.stage in (STAGE_UNKNOWN, STAGE_BUILDING) for a in builds) < BUILDERS[node.id]
    return len(running) - sum(a.stage != STAGE_PREPARING for a in builds) < 3


class SchedulerMachine(RuleBasedStateMachine, Observer):
    """The clients, nodes and journal around one core, which crashes now and then."""

    @initialize()
    def start(self) -> None:
        self.clock = Clock()
        self.store = self.new_store()
        self.nodes = {name: FakeNode(name) for name in NODES}
        self.numbers = itertools.count(1)
        self.bodies: dict[Key, bytes] = {}  # digests of evaluations that the scheduler must know, or may know
        self.accepted: set[Key] = set()  # evaluations that it said it has
        self.told: dict[Key, tuple[Any, ...]] = {}  # the outcomes that it told
        self.watched: dict[Key, Evaluation] = {}
        self.newest: dict[bytes, str] = {}  # the last token of each job, on disk or not
        self.newest_kept: dict[bytes, str] = {}
        self.placed: dict[bytes, set[str]] = {}  # all tokens of each job, except refused ones
        self.placed_kept: dict[bytes, set[str]] = {}
        self.runs: dict[bytes, set[str]] = {}  # tokens of each job that reached a node
        self.tokens: set[str] = set()
        self.cancelled: set[Key] = set()
        self.fresh: set[Key] = set()
        self.poisonous: set[bytes] = set()
        self.timeouts: dict[Key, float] = {}
        self.gone: set[str] = set()
        self.stale = 0
        self.boot()
        self.pass_by(0.1, True)

    def new_store(self) -> Store:
        """Return an empty store."""
        return MemoryStore()

    def reopened(self) -> Store:
        """Return the store as the next process opens it."""
        return self.store

    def boot(self) -> None:
        """Start a new process on the store."""
        self.store = self.reopened()
        self.journal = HeldJournal(self.store, self.kept)
        self.core = Core(
            LIMITS, self.clock, self.new_token, self.store, self.journal, fingerprint=lambda e, m: ENVIRONMENT
        )
        self.core.recover(self.store.recover(), spec_of)
        self.core.observers.append(self)
        for node in self.nodes.values():
            node.connected = False

    def new_token(self) -> str:
        token = f"t{next(self.numbers)}"
        assert token not in self.tokens
        self.tokens.add(token)
        return token

    # What the scheduler tells

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Check what was told. Observers are told at once, watchers once it is on disk; only the second counts."""
        if not evaluation.settled:
            return
        assert evaluation.verdict is not None
        outcome = outcome_of(evaluation.verdict)
        assert self.told.setdefault(evaluation.key, outcome) == outcome, "an outcome changed"
        if evaluation.verdict.cached:
            assert outcome[0] != "TIMEOUT", "what a repetition may not give again answered for it"
            assert evaluation.key not in self.fresh
        if evaluation.verdict.failure is not None:
            self.check_blame(evaluation, evaluation.verdict.failure.cause)
        else:
            assert outcome[0] == WORKS[evaluation.digest[0]], "a verdict that the candidate did not earn"

    def check_blame(self, evaluation: Evaluation, cause: str) -> None:
        """Check that infrastructure had a reason to end the evaluation."""
        key = evaluation.key
        match cause:
            case "CANCELLED":
                assert key in self.cancelled
            case "DEADLINE_EXCEEDED":
                assert self.clock.now >= self.timeouts[key]
            case "CLIENT_GONE":
                assert key.client_id in self.gone
            case "QUARANTINED":
                assert evaluation.digest in self.poisonous
            case "NODE_LOST" | "JUDGE_DIED" | "POISON":
                assert evaluation.attempts == LIMITS.max_attempts
            case _:
                raise AssertionError(f"{key} ended by {cause}")

    def stale_completion(self, token: str) -> None:
        self.stale += 1

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        self.placed.pop(job.id, None)
        self.newest.pop(job.id, None)

    def kept(self, record: Record) -> None:
        """Remember a record that no crash can take back any more."""
        match record:
            case Placed(job_id=job_id, token=token):
                self.newest_kept[job_id] = token
                self.placed_kept.setdefault(job_id, set()).add(token)
            case Quarantined(digest=digest):
                self.poisonous.add(digest)
            case Returned(job_id=job_id, attempts=attempts):
                if attempts < len(self.placed_kept[job_id]):  # the attempt was refused, and does not count
                    self.placed_kept[job_id].discard(self.newest_kept[job_id])
            case Finished(job_id=bytes(job_id)):
                for known in (self.newest_kept, self.placed_kept, self.runs):
                    known.pop(job_id, None)

    # Clients

    @rule(batch=st.lists(submits, min_size=1, max_size=4))
    def submit(self, batch: list[tuple[str, int, int, Priority, bool, float | None]]) -> None:
        for one in batch:
            self.submit_one(*one)

    def submit_one(
        self, client: str, number: int, work: int, priority: Priority, fresh: bool, timeout: float | None
    ) -> None:
        key, digest = Key(client, str(number)), bytes([work]) * 32
        unfinished = [e for e in self.watched.values() if e.verdict is None]
        mine = sum(e.key.share == key.share for e in unfinished)
        full = len(unfinished) - len(self.core.attempts) >= LIMITS.max_queued or mine >= LIMITS.max_queued_per_client
        kind, evaluation = self.core.requests.submit(
            SubmitRequest(
                key=key,
                kind=list(ClientKind)[number % 3],
                spec=spec_of(digest),
                digest=digest,
                fingerprint=digest,
                priority=priority,
                timeout_seconds=timeout,
                fresh=fresh,
            )
        )
        if key in self.bodies:
            assert kind is (SubmitStatus.SAME if self.bodies[key] == digest else SubmitStatus.REUSED)
        else:
            assert kind is (SubmitStatus.FULL if full else SubmitStatus.NEW)
        assert (evaluation is None) == (kind in (SubmitStatus.REUSED, SubmitStatus.FULL))
        if kind is SubmitStatus.NEW and evaluation is not None:
            self.bodies[key] = digest
            self.cancelled.discard(key)
            (self.fresh.add if fresh else self.fresh.discard)(key)
            self.timeouts[key] = self.clock.now + (timeout or float("inf"))
            self.watch(evaluation)
            self.journal.after_commit(lambda: self.accepted.add(key))

    def watch(self, evaluation: Evaluation) -> None:
        self.watched[evaluation.key] = evaluation
        self.core.requests.watch(evaluation, self)

    @precondition(lambda self: self.watched)
    @rule(pick=pick)
    def cancel(self, pick: int) -> None:
        evaluation = list(self.watched.values())[pick % len(self.watched)]
        done = evaluation.verdict is not None
        if not done:
            self.cancelled.add(evaluation.key)
        assert self.core.requests.cancel(evaluation) is not done

    @rule(client=st.sampled_from(["a/1", "b"]), comes=st.booleans())
    def come_or_go(self, client: str, comes: bool) -> None:
        self.core.requests.call_opened(client)
        if not comes:
            self.gone.add(client)
            self.core.requests.call_closed(client)

    # The journal and crashes

    @rule(most=st.sampled_from([1, 2, 3, 5, 1000, 1000]))
    def commit(self, most: int) -> None:
        self.journal.commit(most)

    @rule(kept=st.sampled_from([0, 0, 1, 2, 4, 8, 1000]))
    def crash(self, kept: int) -> None:
        self.commit(kept)
        all_on_disk, before = not self.journal.pending, self.state()
        self.boot()
        if all_on_disk:
            assert self.state() == before
        self.watched.clear()
        self.gone.update(key.client_id for key in self.bodies)  # after any start, clients are gone until they come back
        self.newest = dict(self.newest_kept)
        self.placed = {id: set(self.placed_kept.get(id, ())) for id in self.core.evaluations.jobs}
        for key in list(self.bodies):
            evaluation = self.core.requests.get(key)
            if evaluation is None:
                assert key not in self.accepted, f"{key} was accepted, and is not known after a crash"
                assert key not in self.told, f"{key} was done, and is not known after a crash"
                del self.bodies[key]
                continue
            if key in self.told:
                assert evaluation.verdict is not None, f"{key} was done, and is not after a crash"
                assert outcome_of(evaluation.verdict) == self.told[key]
            self.watch(evaluation)

    def state(self) -> tuple[Any, ...]:
        """Return what a crash must not change once it is on disk."""
        core = self.core
        jobs = {
            job.id: (
                *(job.attempts, job.crashes, job.unlucky_nodes, job.share, job.spec),
                *(
                    job.attempt and job.attempt.token,
                    {(e.key, e.merged, e.deadline_at and round(e.deadline_at, 3)) for e in job.evaluations.values()},
                ),
            )
            for job in core.evaluations.jobs.values()
        }
        quarantined = sorted(core.quarantine.entries(), key=lambda each: (each.since_wall, each.digest))
        return jobs, core.fleet._drained, quarantined

    # Nodes

    @rule(
        pick=pick,
        fails=st.booleans(),
        send=st.sampled_from([None, *NODES]),
        crash=st.sampled_from([None, None, 0, 1, 2]),
    )
    def work(self, pick: int, fails: bool, send: str | None, crash: int | None) -> None:
        """Connect all nodes, place and write what can be placed, and finish an attempt. Then perhaps send or crash."""
        self.pass_by(0.1, True)
        self.place()
        self.commit(1000)
        self.finish(pick, fails)
        if send is not None:
            self.send(send, False)
        if crash is not None:
            self.crash(crash)

    @rule(name=st.sampled_from(NODES), work=st.integers(0, len(WORKS) - 1))
    def stop_and_continue(self, name: str, work: int) -> None:
        """Stop a node for longer than its lease while others work. Then it sends what it held, before it listens."""
        for _ in range(4):
            self.submit_one("b", next(self.numbers), work, Priority.HIGH, True, None)
        self.pass_by(0.1, True)
        self.place()
        self.commit(1000)
        for _ in range(6):
            self.clock.now += STEP_SECONDS
            for other in NODES:
                if other != name:
                    self.speak(other)
            self.core.tick()
        self.place()
        self.commit(1000)
        for held in self.nodes[name].held.values():
            held.verdict = held.verdict or Verdict(WORKS[held.work], held.token.encode(), environment=ENVIRONMENT)
        self.send(name, False)

    @rule()
    def place(self) -> None:
        for attempt in self.core.placement.place():
            job_id, token = attempt.job.id, attempt.token
            self.newest[job_id] = token
            self.placed.setdefault(job_id, set()).add(token)
            self.assign(attempt)

    def assign(self, attempt: Attempt) -> None:
        """Give an attempt to its node once it is on disk, if it still counts and the node is connected."""

        def now() -> None:
            node = self.nodes[attempt.node.id]
            there = node.connected and node.report().instance_id == attempt.node.report.instance_id
            if attempt.job.attempt is attempt and there and attempt.token not in node.held:
                node.held[attempt.token] = Held(attempt.token, attempt.job.spec.payload[0])
                self.runs.setdefault(attempt.job.id, set()).add(attempt.token)
                assert len(self.runs[attempt.job.id]) <= LIMITS.max_attempts

        self.journal.after_commit(now)

    @rule(name=st.sampled_from(NODES))
    def speak(self, name: str) -> None:
        """Synchronize the node, and open its Work stream if it has none."""
        node = self.nodes[name]
        stale = self.core.nodes.synchronize(node.report())
        if stale is None:
            return
        for token in stale:
            node.held.pop(token, None)
        if not node.connected:
            there = self.core.nodes.connect(name, node.report().instance_id)
            assert there is not None
            node.connected = True
            for token in node.held.keys() - there.attempts.keys():
                if not self.core.attempts.is_current(token):
                    del node.held[token]
            for attempt in list(there.attempts.values()):
                self.assign(attempt)

    @rule(pick=pick, fails=st.sampled_from([False, False, False, True]))
    def finish(self, pick: int, fails: bool) -> None:
        """End an attempt on a node by a result, or by the death of its judge. The scheduler may hear of it later."""
        running = [(n, h) for n in self.nodes.values() for h in n.held.values() if h.verdict is None]
        if running:
            _, held = running[pick % len(running)]
            held.verdict = (
                Verdict.failed("JUDGE_DIED", "scripted", retryable=True)
                if fails
                else Verdict(WORKS[held.work], held.token.encode(), environment=ENVIRONMENT)
            )

    @rule(name=st.sampled_from(NODES), twice=st.booleans())
    def send(self, name: str, twice: bool) -> None:
        """Send the results of a node, stale or not. The node forgets them when they are acknowledged."""
        node = self.nodes[name]
        for held in list(node.held.values()) if node.connected else []:
            if held.verdict is not None:
                self.complete(held.token, held.verdict)
                if twice:
                    self.complete(held.token, held.verdict)
                self.journal.after_commit(lambda token=held.token: node.held.pop(token, None))  # type: ignore[misc]

    @rule(pick=pick, stage=st.sampled_from([STAGE_BUILDING, STAGE_QUEUED, STAGE_PREPARING]))
    def progress(self, pick: int, stage: int) -> None:
        """Report a stage of an attempt, stale or not."""
        if held := [token for node in self.nodes.values() if node.connected for token in node.held]:
            token = held[pick % len(held)]
            self.core.results.progress(token, stage, "cpu:0" if stage == STAGE_PREPARING else "")

    def complete(self, token: str, verdict: Verdict) -> None:
        attempt = self.core.attempts.get(token)
        if attempt is not None:
            assert self.newest[attempt.job.id] == token, "an attempt decides that is not its job's last"
        before = self.outcomes()
        taken = self.core.results.complete(token, verdict)
        assert taken == (attempt is not None)
        if attempt is None:
            assert self.outcomes() == before, "a stale result had an effect"

    def outcomes(self) -> dict[Key, object]:
        return {key: evaluation.verdict for key, evaluation in self.watched.items()}

    @rule(number=st.integers(0, 50))
    def complete_what_never_was(self, number: int) -> None:
        stale = self.stale
        self.complete(f"invented{number}", Verdict("CORRECT", environment=ENVIRONMENT))
        assert self.stale == stale + 1

    @precondition(lambda self: any(node.held for node in self.nodes.values()))
    @rule(pick=pick)
    def refuse(self, pick: int) -> None:
        held = [(n, h) for n in self.nodes.values() for h in n.held.values() if h.verdict is None and n.connected]
        if held:
            node, one = held[pick % len(held)]
            del node.held[one.token]
            counts = self.core.attempts.get(one.token) is None  # it was given up before, and counts like other attempts
            self.core.results.refuse(one.token, 2.0)
            for tokens in (*self.runs.values(), *([] if counts else self.placed.values())):
                tokens.discard(one.token)  # the attempt never ran

    @rule(name=st.sampled_from(NODES), at_once=st.booleans(), dice=st.integers(0, 1))
    def die(self, name: str, at_once: bool, dice: int) -> None:
        """End the process of a node. The scheduler finds out at once, by the lease, or from the next process."""
        node = self.nodes[name]
        if dice or not node.held:
            return
        node.instance += 1
        node.held.clear()
        self.hang_up(name)
        known = self.core.fleet.nodes.get(name)
        if at_once and known is not None and not known.connected:
            self.core.nodes.lose(known, "nobody listens")

    @rule(name=st.sampled_from(NODES))
    def hang_up(self, name: str) -> None:
        """Break the Work stream of a node."""
        node = self.nodes[name]
        if node.connected:
            node.connected = False
            self.core.nodes.disconnect(self.core.fleet.nodes[name])

    @rule(name=st.sampled_from(NODES), drained=st.booleans())
    def drain(self, name: str, drained: bool) -> None:
        if name in self.core.fleet.nodes:
            self.core.nodes.drain(name, drained)

    @rule(
        seconds=st.sampled_from([0.1, 1.0, 1.0, 3.0, 3.0, 11.0, 50.0]), reporting=st.sampled_from([True, True, False])
    )
    def pass_by(self, seconds: float, reporting: bool) -> None:
        """Let time pass in ticks. All nodes report meanwhile, or none does."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + STEP_SECONDS)
            if reporting:
                for name in self.nodes:
                    self.speak(name)
            self.core.tick()

    @rule()
    def sleep(self) -> None:
        """Stop the scheduler's process for a while. It heard nothing meanwhile, so it must blame no node."""
        live = self.core.fleet.live()
        self.clock.now += 5 * LIMITS.lease_seconds
        self.core.tick()
        assert self.core.fleet.live() == live

    @rule()
    def release(self) -> None:
        """Release everything from quarantine, as an operator does."""
        for node in self.core.fleet.nodes.values():
            if node.quarantined_wall:
                self.core.nodes.release(node)
        for entry in self.core.quarantine.entries():
            assert self.core.quarantine.release(entry.digest)

    # What must hold at any moment

    @invariant()
    def the_books_agree(self) -> None:
        """Check every index against a naive recount."""
        core = self.core
        if not hasattr(self, "watched"):
            return
        unfinished = [e for e in self.watched.values() if e.verdict is None]
        jobs = {id(e.job): e.job for e in unfinished if e.job is not None}.values()
        assert {job.id: job for job in jobs} == core.evaluations.jobs
        assert core.clients.count == len(unfinished)
        for client in ("a/1", "a/2", "b"):
            assert set(core.clients.unfinished(client)) == {e for e in unfinished if e.key.client_id == client}
        assert core.clients._by_share == Counter(e.key.share for e in unfinished)
        waiting = [job for job in jobs if job.attempt is None]
        running = [job for job in jobs if job.attempt is not None]
        ages = core.queue.ages
        assert len(core.queue) == len(waiting) == sum(ages.depth.values())
        for one in itertools.starmap(JobClass, itertools.product(Priority, ClientKind)):
            since = [job.queued_at for job in waiting if (job.priority, job.kind) == one]
            assert (ages.depth[one], ages.oldest(one)) == (len(since), min(since, default=None))
        assert all((job in core.queue) == (job.attempt is None) for job in jobs)
        assert core.queue.bytes == sum(len(job.spec.payload) for job in waiting)
        assert core.queue.shares() == Counter(job.share for job in waiting)
        assert len(core.attempts) == len(running)
        assert core.evaluations.waiting() == sum(len(job.evaluations) for job in waiting)
        on_nodes = {token: a for node in core.fleet.nodes.values() for token, a in node.attempts.items()}
        assert on_nodes == core.attempts.by_token == {job.attempt.token: job.attempt for job in running if job.attempt}
        for job in jobs:
            assert job.evaluations
            assert all(e.job is job for e in job.evaluations.values())
            assert (job.attempt is not None) <= job.attempts <= LIMITS.max_attempts
            assert job.attempts == len(self.placed.get(job.id, ()))
            assert job.queued_at <= min(e.accepted_at for e in job.evaluations.values())
        for node in core.fleet.nodes.values():
            most = 3 + BUILDERS[node.id]
            assert len(node.attempts) <= most or not node.report.devices, "two lanes and one more, and the builders"
            assert not (node.lost and node.attempts), "a lost node has no attempts"
            assert node.attempts_by_requirement == Counter(a.job.spec.requirement for a in node.attempts.values())
            for may_build, nodes in core.fleet._open.items():
                assert (node in nodes) == takes(node, may_build=may_build)

    def teardown(self) -> None:
        """End all faults, and check that every accepted evaluation gets its outcome."""
        if not hasattr(self, "watched"):
            return
        for _ in range(200):
            self.release()
            for name in self.nodes:
                self.drain(name, False)
                self.speak(name)
            self.place()
            self.commit(1000)
            for _ in range(20):
                self.finish(0, False)
            for name in self.nodes:
                self.send(name, False)
            self.commit(1000)
            self.pass_by(2.0, True)
            self.the_books_agree()
            if not self.core.evaluations.jobs and not self.core.evaluations.by_key:
                break
        for key in self.accepted:
            assert key in self.told, f"{key} was accepted, and nobody was ever told what came of it"
            found = self.core.requests.get(key)
            assert found is not None
            assert found.verdict is not None
            assert outcome_of(found.verdict) == self.told[key]
        self.store.close()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=EXAMPLES or sampling.examples(100),
    stateful_step_count=80,
    deadline=None,
    derandomize=not EXAMPLES,  # CI tries the same histories each time; with more examples they are new
    suppress_health_check=list(HealthCheck),
)
