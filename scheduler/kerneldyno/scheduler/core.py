"""The scheduler's state machine: what is accepted, what runs where, what is done.

Every method is synchronous and takes effect at once; time, tokens, the journal and the store are injected. The services and
the dispatcher call it, and observe it. It trusts no attempt but the one that holds its job's current token. Each decision
goes to the journal as a record; whoever is to be told of it is told once the record is on disk, so that nothing that was
said is ever taken back by a crash. What is finished and on disk is forgotten here, and read from the store when asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from kerneldyno.scheduler.attempts import Attempts
from kerneldyno.scheduler.blame import CACHEABLE, Quarantine, is_crash, is_handed_back, is_poison, larger
from kerneldyno.scheduler.clients import Clients
from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.fleet import Fleet
from kerneldyno.scheduler.model import (
    Attempt,
    ClientKind,
    Evaluation,
    Job,
    Key,
    Node,
    NodeState,
    Priority,
    Report,
    Requirement,
    Spec,
    SpeedupKind,
    Submission,
    Verdict,
    Watcher,
)
from kerneldyno.scheduler.observer import Observer
from kerneldyno.scheduler.queue import WaitingLine
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.store.base import (
    Accepted,
    Answered,
    Drained,
    Finished,
    Journal,
    Placed,
    Recovered,
    Returned,
    Store,
    StoredEvaluation,
    restored,
)
from kerneldyno.scheduler.unmatched import Unmatched

#: Seconds between two calls of `tick`.
TICK_SECONDS = 0.25


class Core:
    """The state machine."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        new_token: Callable[[], str],
        store: Store,
        journal: Journal,
        *,
        fingerprint: Callable[[bytes, str], bytes],
    ) -> None:
        """`fingerprint` tells environments apart: (a node's serialised environment, a device model) -> digest."""
        self.observers: list[Observer] = []
        self.fleet = Fleet(settings.heartbeat_seconds, settings.lease_seconds, fingerprint)
        self.waiting = WaitingLine()
        self.attempts = Attempts(self.fleet)
        self.clients = Clients(settings.max_queued_per_client, settings.client_grace_seconds)
        self.quarantine = Quarantine(settings.quarantine_seconds, clock, journal)
        self.placing = True
        self.outcomes: Counter[str] = Counter()
        self._settings = settings
        self._clock = clock
        self._new_token = new_token
        self._store = store
        self._journal = journal
        self._evaluations: dict[Key, Evaluation] = {}  # without a verdict on disk
        self._jobs: dict[bytes, Job] = {}
        self._ending: dict[bytes, Verdict] = {}  # of jobs whose end is not on disk yet, where others may have it too
        self._unmatched = Unmatched(self.fleet, settings)
        self._last_tick = clock.monotonic()
        self._registered_at = self._last_tick  # from when on a node that has not registered is not there

    def recover(self, found: Recovered, read_spec: Callable[[bytes], Spec]) -> None:
        """Take up what an earlier process left: jobs wait again, or wait for their node to come back with their token."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        if found.jobs:
            self._registered_at = now + self._settings.lease_seconds
        self.quarantine.restore(found.quarantined)
        for node_id in found.drained_nodes:
            self.fleet.set_drained(node_id, True)
        for old in found.jobs:
            job = Job(old.job_id, read_spec(old.payload), old.share, Priority.LOW, now)
            job.attempts, job.crashes, job.trace = old.attempts, old.crashes, old.trace
            job.unlucky_nodes = set(old.unlucky_nodes)
            self._jobs[job.id] = job
            if old.token:
                node = self.fleet.restore(old.node_id, old.instance_id, now, wall)
                job.placed_at, job.placed_wall = now, old.placed_wall
                self.attempts.attach(Attempt(old.token, job, node, now), last_try=self._is_last_try(job))
        for one in found.evaluations:
            assert one.job_id is not None, "an unfinished evaluation has a job"
            waited = max(0.0, wall - one.accepted_wall)
            evaluation = restored(one, now - waited)
            if one.deadline_wall is not None:
                evaluation.deadline_at = now + max(0.0, one.deadline_wall - wall)
            self._enter(evaluation, self._jobs[one.job_id])
            self.clients.miss(one.key.client_id, now)
        for job in list(self._jobs.values()):
            if job.attempt is None and not self._quarantined(job):
                self.waiting.add(job)
        self._last_tick = now
        self._work_changed()

    # Requests

    def submit(
        self,
        key: Key,
        fingerprint: bytes,
        digest: bytes,
        spec: Spec,
        *,
        priority: Priority,
        labels: dict[str, str],
        kind: ClientKind,
        timeout_seconds: float | None = None,
        grace_seconds: float | None = None,
        fresh: bool = False,
        speedup_kind: SpeedupKind = SpeedupKind.DEVICE,
        trace: str = "",
    ) -> tuple[Submission, Evaluation | None]:
        """Accept an evaluation, and return it; unless too much waits, or the id belongs to another body.

        `fresh` asks for a run of its own, even where another's could answer.
        """
        known = self.get(key)
        if known is not None:
            same = known.fingerprint == fingerprint
            return (Submission.SAME, known) if same else (Submission.REUSED, None)
        if not self.has_room(key.share):
            return Submission.FULL, None
        now, wall = self._clock.monotonic(), self._clock.wall()
        evaluation = Evaluation(
            key, fingerprint, digest, priority, labels, now, wall, speedup_kind=speedup_kind, trace=trace
        )
        ending = None if fresh or digest in self._jobs else self._ending.get(digest)
        if not fresh and ending is None and self._answer(evaluation, spec.requirement):
            return Submission.NEW, evaluation
        if timeout_seconds is not None:
            evaluation.deadline_at = now + timeout_seconds
        evaluation.grace_seconds = grace_seconds
        job = None if fresh else self._jobs.get(digest)
        joins = job is not None
        evaluation.merged = joins or ending is not None
        if job is None:
            job_id = digest + self._new_token().encode() if fresh else digest
            job = self._jobs[job_id] = Job(job_id, spec, key.share, priority, now, kind)
            job.trace = trace
        if evaluation.merged:
            self._tell(lambda observer: observer.deduplicated("merged"))
        self._journal.append(
            Accepted(
                key=key,
                fingerprint=fingerprint,
                digest=digest,
                job_id=job.id,
                priority=priority,
                labels=labels,
                accepted_wall=wall,
                deadline_wall=None if timeout_seconds is None else wall + timeout_seconds,
                merged=evaluation.merged,
                payload=None if joins else spec.payload,
                trace=trace,
                speedup_kind=speedup_kind,
                grace_seconds=grace_seconds,
            )
        )
        self._enter(evaluation, job)
        self._tell(lambda observer: observer.evaluation_accepted(evaluation))
        if ending is not None:
            self._end(job, ending)
        elif not self._quarantined(job) and not joins:
            self.waiting.add(job)
        self._work_changed()
        return Submission.NEW, evaluation

    def has_room(self, share: str) -> bool:
        """Say whether one more evaluation of `share` may be accepted."""
        settings = self._settings
        return (
            self.backlog() < settings.max_queued
            and self.clients.has_room(share)
            and self.waiting.bytes < settings.max_queued_bytes
            and self._journal.has_room()
        )

    def set_share(self, share: str, *, weight: float, quota: int | None) -> None:
        """Give a share its weight, and its quota; None for everybody's."""
        self.waiting.set_weight(share, weight)
        self.clients.set_quota(share, quota)

    def get(self, key: Key) -> Evaluation | None:
        """Return an evaluation, or None when it is not known or no longer kept."""
        evaluation = self._evaluations.get(key)
        if evaluation is None and (stored := self._store.find(key)) is not None:
            evaluation = restored(stored, self._clock.monotonic())
            evaluation.settled = True
        return evaluation

    def current(self, stored: StoredEvaluation) -> Evaluation:
        """Return what is known of a stored evaluation: more than the store knew, if it was unfinished."""
        if stored.verdict is not None:
            return restored(stored, self._clock.monotonic())
        return self.get(stored.key) or restored(stored, self._clock.monotonic())

    def cancel(self, evaluation: Evaluation, cause: str = "CANCELLED", detail: str = "cancelled on request") -> bool:
        """End `evaluation` now, wherever it is, and say whether that was so; a finished one stays as it is.

        Its job goes on while others wait for it.
        """
        job = evaluation.job
        if evaluation.verdict is not None or job is None:
            return False
        verdict = Verdict.failed(cause, detail, retryable=False)
        if len(job.evaluations) == 1:
            self._end(job, verdict)
        else:
            self._finish(job, [evaluation], verdict, ends=False)
        self._work_changed()
        return True

    def watch(self, evaluation: Evaluation, watcher: Watcher) -> None:
        """Tell `watcher` when `evaluation` is done and on disk, at once if it is, until `unwatch`."""
        evaluation.watchers.add(watcher)
        if evaluation.settled:
            watcher.evaluation_done(evaluation)

    def unwatch(self, evaluation: Evaluation, watcher: Watcher) -> None:
        """Forget `watcher`."""
        evaluation.watchers.discard(watcher)

    def arrive(self, client_id: str) -> None:
        """Note that a call of this client is open."""
        self.clients.arrive(client_id)

    def depart(self, client_id: str) -> None:
        """Note that it has ended; after the last one the client's work is cancelled when the grace is over."""
        self.clients.depart(client_id, self._clock.monotonic())

    # Attempts

    def place(self) -> list[Attempt]:
        """Place what can be placed and return the new attempts, for the dispatcher to hand out."""
        placed: list[Attempt] = []
        while self.placing and (choice := self._next()) is not None:
            job, node = choice
            self.waiting.take(job)
            now = self._clock.monotonic()
            attempt = Attempt(self._new_token(), job, node, now)
            job.attempts += 1
            job.placed_at, job.placed_wall = now, self._clock.wall()
            self.attempts.attach(attempt, last_try=self._is_last_try(job))
            node.remember(job.spec.reference)
            self._journal.append(
                Placed(job.id, attempt.token, node.id, node.report.instance_id, job.attempts, job.placed_wall)
            )
            placed.append(attempt)
            waited = now - job.queued_at
            for observer in self.observers:
                observer.attempt_started(attempt, waited)
        if placed:
            self._room_made()
        return placed

    def is_current(self, token: str) -> bool:
        """Say whether the attempt may still decide its job, or has just done so."""
        return self.attempts.get(token) is not None or self.attempts.settling(token)

    def progress(self, token: str, stage: int, device: str) -> None:
        """Note how far an attempt is."""
        if (attempt := self.attempts.get(token)) is not None:
            attempt.stage, attempt.device = stage, device

    def complete(self, token: str, verdict: Verdict) -> bool:
        """Take the end of an attempt; False when it is stale, and then nothing changes."""
        attempt = self.attempts.get(token)
        if attempt is None:
            if not self.attempts.settling(token):  # a repeated message is not a late one
                self._tell(lambda observer: observer.stale_completion(token))
            return False
        self.attempts.settle(token)
        self.attempts.detach(attempt)
        self._tell(lambda observer: observer.attempt_ended(attempt, verdict))
        failure = verdict.failure
        if failure is not None and is_handed_back(failure):
            attempt.job.attempts -= 1
            self._tell(lambda observer: observer.retried(attempt.job, failure.cause))
            self._put_back(attempt.job)
        elif failure is not None and failure.retryable:
            self._blame(attempt.node)
            self._retry(attempt, verdict)
        else:
            self.fleet.succeeded(attempt.node)
            if not self._pass_on(attempt, verdict):
                self._end(attempt.job, verdict)
        self._journal.after_commit(lambda: self.attempts.settled(token))
        self._work_changed()
        return True

    def refuse(self, token: str, hold_seconds: float) -> None:
        """Put a job back that its node would not take now; nothing was started, so it does not count."""
        if (attempt := self.attempts.get(token)) is not None:
            job = attempt.job
            self.attempts.detach(attempt)
            refusal = Verdict.failed("NODE_REFUSED", "the node would not take it now", retryable=True)
            self._tell(lambda observer: observer.attempt_ended(attempt, refusal))
            self.fleet.hold(attempt.node, self._clock.monotonic(), hold_seconds)
            job.attempts -= 1
            self._put_back(job)
            self._work_changed()

    # Nodes

    def synchronize(self, report: Report) -> list[str] | None:
        """Register a node or renew its lease; return the tokens it must drop, or None when its name is taken."""
        now = self._clock.monotonic()
        if self.fleet.is_twin(report, now):
            return None
        before = self.fleet.nodes.get(report.node_id)
        if before is not None and before.report.instance_id != report.instance_id:
            self._lose_attempts(before, f"node {before.id} was restarted")
        known = before if before is not None and not before.lost and before.report.devices else None
        node = self.fleet.update(report, now, self._clock.wall())
        if node is not known:
            self._unmatched.node_came(now)
            self._tell(lambda observer: observer.node_joined(node))
        self._work_changed()
        held = report.attempt_tokens
        return [token for token in held if token not in node.attempts and not self.attempts.settling(token)]

    def connect(self, node_id: str, instance_id: str) -> Node | None:
        """Note that the node's Work stream is open; None when it has no lease under these names."""
        node = self.fleet.nodes.get(node_id)
        if node is None or node.lost or node.report.instance_id != instance_id or not node.report.devices:
            return None
        self.fleet.connect(node)
        self._work_changed()
        return node

    def heard(self, node: Node) -> None:
        """Note that something came from the node, which is as good as a report that it lives."""
        if not node.lost:
            node.heard_at, node.heard_wall = self._clock.monotonic(), self._clock.wall()

    def disconnect(self, node: Node) -> None:
        """Note that the node's Work stream has ended; its attempts go on while its lease does."""
        self.fleet.disconnect(node)

    def lose(self, node: Node, detail: str, *, expired: bool = False) -> None:
        """Give up a node: its attempts start elsewhere, and what still comes of them is refused."""
        if not node.lost:
            quiet = node.state is NodeState.DRAINING and not node.attempts
            self.fleet.lose(node)
            if not quiet:
                self._tell(lambda observer: observer.node_lost(node, expired=expired))
            self._lose_attempts(node, detail)
            self._work_changed()

    def drain(self, node_id: str, drained: bool) -> None:
        """Have a node take nothing more, or take work again."""
        self.fleet.set_drained(node_id, drained)
        self._journal.append(Drained(node_id, drained))
        self._work_changed()

    def release(self, node: Node) -> None:
        """Take a node out of quarantine."""
        self.fleet.release(node)
        self._work_changed()

    # Time

    def tick(self) -> None:
        """End leases, deadlines and waits that are over. To be called every TICK_SECONDS."""
        now = self._clock.monotonic()
        heartbeat, late = self._settings.heartbeat_seconds, now - self._last_tick - TICK_SECONDS
        self._last_tick = now
        if late > 2 * heartbeat:
            self.fleet.renew_all(now)  # this process was stopped: the silence was its own
        elif late > heartbeat / 2:
            self.fleet.extend_all(late)  # it was too busy to listen, for this long
        for node in self.fleet.expired(now):
            detail = f"node {node.id} was not heard of for {self._settings.lease_seconds:g} s"
            self.lose(node, detail, expired=True)
        self._cancel_unwanted(now)
        self._end_overdue(now)
        for job, verdict in self._unmatched.overdue(self.waiting, now, known=self.knows_fleet()):
            # Where a larger device is gone again, what the smaller one said counts.
            self._end(job, job.too_large or verdict)
        self._work_changed()  # a hold may have ended

    # What others ask

    def running(self) -> int:
        """Return how many attempts run."""
        return len(self.attempts)

    def backlog(self) -> int:
        """Return how many evaluations are unfinished, less the attempts that run: what `max_queued` bounds."""
        return self.clients.count - len(self.attempts)

    def waiting_evaluations(self) -> int:
        """Return how many evaluations have neither an attempt nor a verdict."""
        return sum(len(job.evaluations) for job in self._jobs.values() if job.attempt is None)

    def knows_fleet(self) -> bool:
        """Say whether what no node offers is not to be had; not before the first registers, nor soon after a restart."""
        return self._clock.monotonic() >= self._registered_at and self.fleet.known_backends() is not None

    def known_backends(self) -> list[str] | None:
        """Return the backends of all nodes, those lately lost included; None while that is not known."""
        return self.fleet.known_backends() if self.knows_fleet() else None

    def known_toolkits(self) -> list[str] | None:
        """Return the toolkits of all nodes, those lately lost included; None while that is not known."""
        return self.fleet.known_toolkits() if self.knows_fleet() else None

    def never_runs(self, need: Requirement) -> str | None:
        """Return why no node can ever run such work; None while one can, or one may come that can."""
        return self._unmatched.never(need, self._clock.monotonic()) if self.knows_fleet() else None

    def can_profile(self) -> bool:
        """Say whether some node can profile, or one may come that can."""
        return not self.knows_fleet() or self.fleet.can_profile()

    # Inside: evaluations

    def _enter(self, evaluation: Evaluation, job: Job) -> None:
        """Have `evaluation` wait for `job`."""
        key = evaluation.key
        evaluation.job = job
        if evaluation.merged:
            evaluation.joined_trace = job.trace
        self._evaluations[key] = evaluation
        self.clients.enter(evaluation)
        waits = job in self.waiting and evaluation.priority.value < job.priority.value
        if waits:
            self.waiting.remove(job)
        job.evaluations[key] = evaluation
        job.queued_at = min(job.queued_at, evaluation.accepted_at)
        job.priority = min(job.priority, evaluation.priority, key=lambda priority: priority.value)
        if waits:
            self.waiting.add(job)

    def _answer(self, evaluation: Evaluation, need: Requirement) -> bool:
        """Answer by a stored result of the same work, from an environment that would be used now, if there is one."""
        environments = self.fleet.environments(need)
        found = self._store.cached(evaluation.digest, environments) if environments else None
        if found is None:
            return False
        evaluation.verdict = replace(found.verdict, cached=True)
        evaluation.finished_wall = evaluation.accepted_wall
        self._evaluations[evaluation.key] = evaluation
        self._journal.append(
            Answered(
                evaluation.key,
                evaluation.fingerprint,
                evaluation.digest,
                evaluation.priority,
                evaluation.labels,
                evaluation.accepted_wall,
                found.number,
                evaluation.verdict,
                evaluation.trace,
                evaluation.speedup_kind,
            )
        )
        self._tell(lambda observer: observer.deduplicated("cached"))
        self._tell(lambda observer: observer.evaluation_accepted(evaluation))
        self._announce([evaluation], evaluation.verdict)
        return True

    def _quarantined(self, job: Job) -> bool:
        """End a job whose work may not run now, and say whether that was so."""
        failure = self.quarantine.reason(job.digest)
        if failure is not None:
            self._end(job, Verdict("INFRASTRUCTURE_ERROR", failure=failure))
        return failure is not None

    def _end(self, job: Job, verdict: Verdict) -> None:
        """End a job, wherever it is, and every evaluation that waits for it."""
        if job.attempt is not None:
            self._drop(job.attempt, verdict, node_lost=False)
        elif job in self.waiting:
            self.waiting.remove(job)
        self._finish(job, list(job.evaluations.values()), verdict, ends=True)

    def _finish(self, job: Job, evaluations: list[Evaluation], verdict: Verdict, *, ends: bool) -> None:
        wall = self._clock.wall()
        for evaluation in evaluations:
            evaluation.verdict, evaluation.finished_wall = verdict, wall
            evaluation.attempts, evaluation.placed_wall = job.attempts, job.placed_wall
            evaluation.job = None
            del job.evaluations[evaluation.key]
            self.clients.leave(evaluation)
        cacheable = verdict.outcome in CACHEABLE and bool(verdict.environment)
        self._journal.append(
            Finished(
                keys=tuple(evaluation.key for evaluation in evaluations),
                job_id=job.id if ends else None,
                digest=job.digest,
                verdict=verdict,
                cacheable=cacheable,
                attempts=job.attempts,
                placed_wall=job.placed_wall,
                finished_wall=wall,
            )
        )
        if ends:
            del self._jobs[job.id]
            seconds = None if job.placed_at is None else self._clock.monotonic() - job.placed_at
            self._tell(lambda observer: observer.job_done(job, verdict, seconds))
            if cacheable:
                self._ending[job.digest] = verdict
                self._journal.after_commit(lambda: self._forget_ending(job.digest))
        self._announce(evaluations, verdict)
        self._room_made()

    def _forget_ending(self, digest: bytes) -> None:
        self._ending.pop(digest, None)

    def _announce(self, evaluations: list[Evaluation], verdict: Verdict) -> None:
        """Tell observers now, and those who wait once it is on disk."""
        self.outcomes[verdict.outcome] += len(evaluations)
        for evaluation in evaluations:
            for observer in self.observers:
                observer.evaluation_done(evaluation)
        self._journal.after_commit(lambda: self._settle(evaluations))

    def _settle(self, evaluations: list[Evaluation]) -> None:
        for evaluation in evaluations:
            evaluation.settled = True
            del self._evaluations[evaluation.key]
            for watcher in list(evaluation.watchers):
                watcher.evaluation_done(evaluation)

    # Inside: attempts

    def _next(self) -> tuple[Job, Node] | None:
        now = self._clock.monotonic()
        for job in self.waiting.heads():
            if (node := self.fleet.choose(job, now, last_try=self._is_last_try(job))) is not None:
                if self.fleet.hot_elsewhere(job, node, now):
                    job = self.waiting.instead(job, node.hot, now)
                return job, node
        return None

    def _is_last_try(self, job: Job) -> bool:
        """Say whether one more crash ends the job."""
        return job.crashes >= self._settings.max_attempts - 1

    def _drop(self, attempt: Attempt, why: Verdict, *, node_lost: bool) -> None:
        self.attempts.detach(attempt)
        self._tell(lambda observer: observer.attempt_ended(attempt, why))
        self._tell(lambda observer: observer.attempt_dropped(attempt, node_lost=node_lost))

    def _retry(self, attempt: Attempt, verdict: Verdict) -> None:
        """Put the job of a lost attempt back at the head of its line, or give up."""
        job, failure = attempt.job, verdict.failure
        assert failure is not None, "only failures of infrastructure are retried"
        job.unlucky_nodes.add(attempt.node.id)
        job.crashes += is_crash(failure)
        if job.attempts - job.passed_on < self._settings.max_attempts:
            self._tell(lambda observer: observer.retried(job, failure.cause))
            self._put_back(job)
        elif is_poison(job, self._settings.max_attempts):
            reason = self.quarantine.impose(job, failure)
            self._tell(lambda observer: observer.quarantined("work", job.digest.hex(), reason))
            self._end(job, Verdict.failed("POISON", reason, retryable=False))
            for other in [other for other in self._jobs.values() if other.digest == job.digest]:
                if other.attempt is None:  # a fresh run of the same, which waits
                    self._quarantined(other)
        else:
            self._end(job, verdict)

    def _pass_on(self, attempt: Attempt, verdict: Verdict) -> bool:
        """Have a job that was too large for its device wait for a larger one; False when there is none.

        Each time it needs more memory than before, so this ends. The journal does not know: after a restart of this process
        the job may go to the small device once more.
        """
        job, shortage = attempt.job, verdict.shortage
        need = None if shortage is None else larger(attempt, shortage)
        # Soon after a restart of this process, larger devices may not have registered yet.
        if need is None or (self.knows_fleet() and not self.fleet.any_offers(need)):
            return False
        job.spec, job.too_large = replace(job.spec, requirement=need), verdict
        job.passed_on += 1
        self._tell(lambda observer: observer.retried(job, verdict.outcome))
        self._put_back(job)
        return True

    def _put_back(self, job: Job) -> None:
        if self._quarantined(job):
            return
        self._journal.append(Returned(job.id, job.attempts, job.crashes, tuple(sorted(job.unlucky_nodes))))
        self.waiting.add(job, first=True)

    def _lose_attempts(self, node: Node, detail: str) -> None:
        if node.attempts:
            self._blame(node)
        for attempt in list(node.attempts.values()):
            lost = Verdict.failed("NODE_LOST", detail, retryable=True)
            self._drop(attempt, lost, node_lost=True)
            self._retry(attempt, lost)

    def _blame(self, node: Node) -> None:
        """Count a failure of infrastructure on `node`."""
        before = node.quarantined_wall
        self.fleet.failed(node, self._clock.monotonic(), self._clock.wall())
        if node.quarantined_wall and not before:
            reason = f"{node.failures} attempts in a row failed on it"
            self._tell(lambda observer: observer.quarantined("node", node.id, reason))

    # Inside: time

    def _cancel_unwanted(self, now: float) -> None:
        for evaluation in self.clients.late(now):
            self.cancel(evaluation, "DEADLINE_EXCEEDED", "the request's total_timeout passed")
        for evaluation, grace in self.clients.gone(now):
            self.cancel(evaluation, "CLIENT_GONE", f"no call of the client was open for {grace:g} s")

    def _end_overdue(self, now: float) -> None:
        for attempt, limit in self.attempts.overdue(now):
            overdue = Verdict.failed("ATTEMPT_OVERDUE", f"no result within {limit:g} s", retryable=True)
            self._drop(attempt, overdue, node_lost=False)
            self._blame(attempt.node)
            self._retry(attempt, overdue)

    # Inside: observers

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for observer in self.observers:
            call(observer)

    def _work_changed(self) -> None:
        for observer in self.observers:
            observer.work_changed()

    def _room_made(self) -> None:
        for observer in self.observers:
            observer.room_made()
