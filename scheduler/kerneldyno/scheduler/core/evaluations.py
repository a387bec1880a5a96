"""The unfinished evaluations and their jobs: how an evaluation joins a job, and how both end.

An end is told twice: to observers at once, and to the watchers of an evaluation when it is on disk. An evaluation whose end
is on disk is removed from memory; from then on it is read from the store.
"""

from __future__ import annotations

from collections import Counter

from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.clients import Clients
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.failures import CACHEABLE
from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.model import Evaluation, Job, Key, Verdict
from kerneldyno.scheduler.core.records import Finished


class Evaluations:
    """Evaluations without a verdict on disk, and the unfinished jobs."""

    def __init__(self, context: Context, *, attempts: Attempts, clients: Clients, queue: FairQueue) -> None:
        self.by_key: dict[Key, Evaluation] = {}
        self.jobs: dict[bytes, Job] = {}
        """Unfinished jobs by job id."""
        self.outcomes: Counter[str] = Counter()
        """Number of evaluations that ended in this process, by outcome."""
        self._clock = context.clock
        self._journal = context.journal
        self._observers = context.observers
        self._attempts = attempts
        self._clients = clients
        self._queue = queue
        self._unsaved: dict[bytes, Verdict] = {}  # cacheable verdicts that are not on disk yet, by digest

    def waiting(self) -> int:
        """Return how many evaluations have neither an attempt nor a verdict."""
        return sum(len(job.evaluations) for job in self.jobs.values() if job.attempt is None)

    def join(self, evaluation: Evaluation, job: Job) -> None:
        """Make `evaluation` wait for `job`, which gets its priority if that is higher."""
        key = evaluation.key
        evaluation.job = job
        if evaluation.merged:
            evaluation.joined_trace = job.trace
        self.by_key[key] = evaluation
        self._clients.add(evaluation)
        requeue = job in self._queue and evaluation.priority.value < job.priority.value
        if requeue:
            self._queue.remove(job)
        job.evaluations[key] = evaluation
        job.queued_at = min(job.queued_at, evaluation.accepted_at)
        job.priority = min(job.priority, evaluation.priority, key=lambda priority: priority.value)
        if requeue:
            self._queue.add(job)

    def unsaved_verdict(self, digest: bytes) -> Verdict | None:
        """Return the cacheable verdict of this work if it has ended and the store does not have it yet."""
        return self._unsaved.get(digest)

    def end_job(self, job: Job, verdict: Verdict) -> None:
        """End a job, running or waiting, and every evaluation that waits for it."""
        if job.attempt is not None:
            self._attempts.drop(job.attempt, verdict, node_lost=False)
        elif job in self._queue:
            self._queue.remove(job)
        self._finish(job, list(job.evaluations.values()), verdict, ends_job=True)

    def end_one(self, job: Job, evaluation: Evaluation, verdict: Verdict) -> None:
        """End one evaluation of a job that other evaluations still wait for."""
        self._finish(job, [evaluation], verdict, ends_job=False)

    def announce(self, evaluations: list[Evaluation], verdict: Verdict) -> None:
        """Tell observers of the end of `evaluations` now, and their watchers once it is on disk."""
        self.outcomes[verdict.outcome] += len(evaluations)
        for evaluation in evaluations:
            for observer in self._observers:
                observer.evaluation_done(evaluation)
        self._journal.after_commit(lambda: self._settle(evaluations))

    def _finish(self, job: Job, evaluations: list[Evaluation], verdict: Verdict, *, ends_job: bool) -> None:
        wall = self._clock.wall()
        for evaluation in evaluations:
            evaluation.verdict, evaluation.finished_wall = verdict, wall
            evaluation.attempts, evaluation.placed_wall = job.attempts, job.placed_wall
            evaluation.job = None
            del job.evaluations[evaluation.key]
            self._clients.remove(evaluation)
        cacheable = verdict.outcome in CACHEABLE and bool(verdict.environment)
        self._journal.append(
            Finished(
                keys=tuple(evaluation.key for evaluation in evaluations),
                job_id=job.id if ends_job else None,
                digest=job.digest,
                verdict=verdict,
                cacheable=cacheable,
                attempts=job.attempts,
                placed_wall=job.placed_wall,
                finished_wall=wall,
            )
        )
        if ends_job:
            del self.jobs[job.id]
            seconds = None if job.placed_at is None else self._clock.monotonic() - job.placed_at
            self._observers.tell(lambda observer: observer.job_done(job, verdict, seconds))
            if cacheable:
                self._unsaved[job.digest] = verdict
                self._journal.after_commit(lambda: self._forget_unsaved(job.digest))
        self.announce(evaluations, verdict)
        self._observers.room_made()

    def _forget_unsaved(self, digest: bytes) -> None:
        self._unsaved.pop(digest, None)

    def _settle(self, evaluations: list[Evaluation]) -> None:
        for evaluation in evaluations:
            evaluation.settled = True
            del self.by_key[evaluation.key]
            for watcher in list(evaluation.watchers):
                watcher.evaluation_done(evaluation)
