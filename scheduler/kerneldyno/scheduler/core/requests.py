"""The requests of clients: submission, deduplication, answers from the store, lookup and cancellation."""

from __future__ import annotations

from dataclasses import replace

from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.clients import Clients
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.evaluations import Evaluations
from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Evaluation, Job, Key, SubmitRequest, SubmitStatus, Verdict, Watcher
from kerneldyno.scheduler.core.records import Accepted, Answered, StoredEvaluation, restored
from kerneldyno.scheduler.core.retries import Retries


class Requests:
    """Accepts, finds and cancels evaluations."""

    def __init__(
        self,
        context: Context,
        *,
        fleet: Fleet,
        clients: Clients,
        queue: FairQueue,
        attempts: Attempts,
        evaluations: Evaluations,
        retries: Retries,
    ) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._new_token = context.new_token
        self._store = context.store
        self._journal = context.journal
        self._observers = context.observers
        self._fleet = fleet
        self._clients = clients
        self._queue = queue
        self._attempts = attempts
        self._evaluations = evaluations
        self._retries = retries

    def submit(self, request: SubmitRequest) -> tuple[SubmitStatus, Evaluation | None]:
        """Accept a request, unless its id was used for another body or too many evaluations are unfinished.

        In this order: an evaluation with the same key is returned; a stored result of the same work answers it; it joins
        a job of the same work; or it gets a new job. A request with `fresh` always gets a new job.

        Returns:
            The status, and the evaluation if it was accepted now or earlier.
        """
        known = self.get(request.key)
        if known is not None:
            same = known.fingerprint == request.fingerprint
            return (SubmitStatus.SAME, known) if same else (SubmitStatus.REUSED, None)
        if not self.has_room(request.key.share):
            return SubmitStatus.FULL, None
        now, wall = self._clock.monotonic(), self._clock.wall()
        evaluation = _evaluation(request, now, wall)
        reusable = None if request.fresh else self._evaluations.jobs.get(request.digest)
        unsaved = None if request.fresh or reusable else self._evaluations.unsaved_verdict(request.digest)
        if not request.fresh and unsaved is None and self._answer_from_store(evaluation, request):
            return SubmitStatus.NEW, evaluation
        if request.timeout_seconds is not None:
            evaluation.deadline_at = now + request.timeout_seconds
        evaluation.grace_seconds = request.grace_seconds
        evaluation.merged = reusable is not None or unsaved is not None
        job = reusable or self._new_job(request, now)
        if evaluation.merged:
            self._observers.tell(lambda observer: observer.deduplicated("merged"))
        self._journal.append(_accepted(request, evaluation, job, wall, new_job=reusable is None))
        self._evaluations.join(evaluation, job)
        self._observers.tell(lambda observer: observer.evaluation_accepted(evaluation))
        if unsaved is not None:
            self._evaluations.end_job(job, unsaved)
        elif not self._retries.end_if_quarantined(job) and reusable is None:
            self._queue.add(job)
        self._observers.work_changed()
        return SubmitStatus.NEW, evaluation

    def has_room(self, share: str) -> bool:
        """Return True if one more evaluation of `share` may be accepted."""
        settings = self._settings
        return (
            self.backlog() < settings.max_queued
            and self._clients.has_room(share)
            and self._queue.bytes < settings.max_queued_bytes
            and self._journal.has_room()
        )

    def backlog(self) -> int:
        """Return the number of unfinished evaluations minus the number of running attempts; `max_queued` limits it."""
        return self._clients.count - len(self._attempts)

    def set_share(self, share: str, *, weight: float, quota: int | None) -> None:
        """Set the weight of a share, and its quota of unfinished evaluations; None is the default quota."""
        self._queue.set_weight(share, weight)
        self._clients.set_quota(share, quota)

    def get(self, key: Key) -> Evaluation | None:
        """Return the evaluation with this key, or None if it is unknown or no longer kept."""
        evaluation = self._evaluations.by_key.get(key)
        if evaluation is None and (stored := self._store.find(key)) is not None:
            evaluation = restored(stored, self._clock.monotonic())
            evaluation.settled = True
        return evaluation

    def current(self, stored: StoredEvaluation) -> Evaluation:
        """Return the present state of a stored evaluation, which may have finished since it was read."""
        if stored.verdict is not None:
            return restored(stored, self._clock.monotonic())
        return self.get(stored.key) or restored(stored, self._clock.monotonic())

    def cancel(self, evaluation: Evaluation, cause: str = "CANCELLED", detail: str = "cancelled on request") -> bool:
        """End `evaluation` now, waiting or running. Its job goes on while other evaluations wait for it.

        Args:
            evaluation: The evaluation; a finished one does not change.
            cause: Failure cause of its verdict.
            detail: Failure detail of its verdict, as text for people.

        Returns:
            True if it was unfinished.
        """
        job = evaluation.job
        if evaluation.verdict is not None or job is None:
            return False
        verdict = Verdict.failed(cause, detail, retryable=False)
        if len(job.evaluations) == 1:
            self._evaluations.end_job(job, verdict)
        else:
            self._evaluations.end_one(job, evaluation, verdict)
        self._observers.work_changed()
        return True

    def cancel_unwanted(self, now: float) -> None:
        """Cancel evaluations whose deadline has passed, or whose client was away for longer than their grace."""
        for evaluation in self._clients.past_deadline(now):
            self.cancel(evaluation, "DEADLINE_EXCEEDED", "the request's total_timeout passed")
        for evaluation, grace in self._clients.abandoned(now):
            self.cancel(evaluation, "CLIENT_GONE", f"the client had no open call for {grace:g} s")

    def watch(self, evaluation: Evaluation, watcher: Watcher) -> None:
        """Tell `watcher` when the verdict of `evaluation` is on disk, now if it is already, until `unwatch`."""
        evaluation.watchers.add(watcher)
        if evaluation.settled:
            watcher.evaluation_done(evaluation)

    def unwatch(self, evaluation: Evaluation, watcher: Watcher) -> None:
        """Stop telling `watcher`."""
        evaluation.watchers.discard(watcher)

    def call_opened(self, client_id: str) -> None:
        """Record that a call of this client was opened."""
        self._clients.call_opened(client_id)

    def call_closed(self, client_id: str) -> None:
        """Record that a call has ended. After a client's last one, its work is cancelled when the grace is over."""
        self._clients.call_closed(client_id, self._clock.monotonic())

    def _new_job(self, request: SubmitRequest, now: float) -> Job:
        job_id = request.digest + self._new_token().encode() if request.fresh else request.digest
        job = Job(job_id, request.spec, request.key.share, request.priority, now, request.kind, trace=request.trace)
        self._evaluations.jobs[job_id] = job
        return job

    def _answer_from_store(self, evaluation: Evaluation, request: SubmitRequest) -> bool:
        """Answer by a stored result of the same work from an environment of a live node. Return True if there is one."""
        environments = self._fleet.offers.environments(request.spec.requirement)
        found = self._store.cached(evaluation.digest, environments) if environments else None
        if found is None:
            return False
        evaluation.verdict = replace(found.verdict, cached=True)
        evaluation.finished_wall = evaluation.accepted_wall
        self._evaluations.by_key[evaluation.key] = evaluation
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
        self._observers.tell(lambda observer: observer.deduplicated("cached"))
        self._observers.tell(lambda observer: observer.evaluation_accepted(evaluation))
        self._evaluations.announce([evaluation], evaluation.verdict)
        return True


def _evaluation(request: SubmitRequest, now: float, wall: float) -> Evaluation:
    return Evaluation(
        request.key,
        request.fingerprint,
        request.digest,
        request.priority,
        request.labels,
        now,
        wall,
        speedup_kind=request.speedup_kind,
        trace=request.trace,
    )


def _accepted(request: SubmitRequest, evaluation: Evaluation, job: Job, wall: float, *, new_job: bool) -> Accepted:
    return Accepted(
        key=request.key,
        fingerprint=request.fingerprint,
        digest=request.digest,
        job_id=job.id,
        priority=request.priority,
        labels=request.labels,
        accepted_wall=wall,
        deadline_wall=None if request.timeout_seconds is None else wall + request.timeout_seconds,
        merged=evaluation.merged,
        payload=request.spec.payload if new_job else None,
        trace=request.trace,
        speedup_kind=request.speedup_kind,
        grace_seconds=request.grace_seconds,
    )
