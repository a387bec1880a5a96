"""What follows from an attempt without a verdict: another try, a larger device, blame on the node or on the work."""

from __future__ import annotations

from dataclasses import replace

from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.capabilities import Capabilities
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.evaluations import Evaluations
from kerneldyno.scheduler.core.failures import is_crash, is_poison, larger_requirement
from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Attempt, Job, Node, Verdict
from kerneldyno.scheduler.core.quarantine import Quarantine
from kerneldyno.scheduler.core.records import Returned


class Retries:
    """Decides whether a job whose attempt failed runs again, and what is blamed for the failure."""

    def __init__(
        self,
        context: Context,
        *,
        fleet: Fleet,
        capabilities: Capabilities,
        attempts: Attempts,
        queue: FairQueue,
        quarantine: Quarantine,
        evaluations: Evaluations,
    ) -> None:
        self._max_attempts = context.settings.max_attempts
        self._clock = context.clock
        self._journal = context.journal
        self._observers = context.observers
        self._fleet = fleet
        self._capabilities = capabilities
        self._attempts = attempts
        self._queue = queue
        self._quarantine = quarantine
        self._evaluations = evaluations

    def is_last_try(self, job: Job) -> bool:
        """Return True if one more crash ends the job for good."""
        return job.crashes >= self._max_attempts - 1

    def retry(self, attempt: Attempt, verdict: Verdict) -> None:
        """Put the job of a failed attempt back at the head of its queue, or end it when it has no attempts left."""
        job, failure = attempt.job, verdict.failure
        assert failure is not None, "only infrastructure failures are retried"
        job.unlucky_nodes.add(attempt.node.id)
        job.crashes += is_crash(failure)
        if job.attempts - job.too_large_attempts < self._max_attempts:
            self._observers.tell(lambda observer: observer.retried(job, failure.cause))
            self.put_back(job)
        elif is_poison(job, self._max_attempts):
            reason = self._quarantine.impose(job, failure)
            self._observers.tell(lambda observer: observer.quarantined("work", job.digest.hex(), reason))
            self._evaluations.end_job(job, Verdict.failed("POISON", reason, retryable=False))
            for other in [other for other in self._evaluations.jobs.values() if other.digest == job.digest]:
                if other.attempt is None:  # a fresh run of the same work, which waits
                    self.end_if_quarantined(other)
        else:
            self._evaluations.end_job(job, verdict)

    def try_larger_device(self, attempt: Attempt, verdict: Verdict) -> bool:
        """Put a job that was too large for its device back into the queue, to wait for a device with more memory.

        The required memory grows each time, so this ends. The journal does not record it: after a restart of this process
        the job may go to the small device once more.

        Returns:
            False if the verdict is a different one, or no larger device is known.
        """
        job, shortage = attempt.job, verdict.shortage
        need = None if shortage is None else larger_requirement(attempt, shortage)
        # Soon after a restart of this process, larger devices may not have registered yet.
        if need is None or (self._capabilities.known() and not self._fleet.offers.match(need)):
            return False
        job.spec, job.too_large_verdict = replace(job.spec, requirement=need), verdict
        job.too_large_attempts += 1
        self._observers.tell(lambda observer: observer.retried(job, verdict.outcome))
        self.put_back(job)
        return True

    def put_back(self, job: Job) -> None:
        """Put a job without an attempt at the head of its queue, or end it if its work is in quarantine by now."""
        if self.end_if_quarantined(job):
            return
        self._journal.append(Returned(job.id, job.attempts, job.crashes, tuple(sorted(job.unlucky_nodes))))
        self._queue.add(job, first=True)

    def end_if_quarantined(self, job: Job) -> bool:
        """End a job whose work is in quarantine, and return whether it was."""
        failure = self._quarantine.reason(job.digest)
        if failure is not None:
            self._evaluations.end_job(job, Verdict("INFRASTRUCTURE_ERROR", failure=failure))
        return failure is not None

    def lose_attempts(self, node: Node, detail: str) -> None:
        """Drop all attempts of a node that is gone, and retry their jobs elsewhere."""
        if node.attempts:
            self.blame(node)
        for attempt in list(node.attempts.values()):
            lost = Verdict.failed("NODE_LOST", detail, retryable=True)
            self._attempts.drop(attempt, lost, node_lost=True)
            self.retry(attempt, lost)

    def end_overdue(self, now: float) -> None:
        """Drop the attempts that ran out of time, and retry their jobs."""
        for attempt, limit in self._attempts.overdue(now):
            overdue = Verdict.failed("ATTEMPT_OVERDUE", f"no result within {limit:g} s", retryable=True)
            self._attempts.drop(attempt, overdue, node_lost=False)
            self.blame(attempt.node)
            self.retry(attempt, overdue)

    def blame(self, node: Node) -> None:
        """Count an infrastructure failure on `node`, which may put it into quarantine."""
        before = node.quarantined_wall
        self._fleet.failed(node, self._clock.monotonic(), self._clock.wall())
        if node.quarantined_wall and not before:
            reason = f"{node.failures} attempts in a row failed on it"
            self._observers.tell(lambda observer: observer.quarantined("node", node.id, reason))
