"""What nodes report about attempts: progress, results and refusals. Only the current attempt of a job decides it."""

from __future__ import annotations

from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.evaluations import Evaluations
from kerneldyno.scheduler.core.failures import is_handed_back
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Verdict
from kerneldyno.scheduler.core.retries import Retries


class Results:
    """Applies the reports of nodes about their attempts."""

    def __init__(
        self,
        context: Context,
        *,
        fleet: Fleet,
        attempts: Attempts,
        evaluations: Evaluations,
        retries: Retries,
    ) -> None:
        self._clock = context.clock
        self._journal = context.journal
        self._observers = context.observers
        self._fleet = fleet
        self._attempts = attempts
        self._evaluations = evaluations
        self._retries = retries

    def progress(self, token: str, stage: int, device: str) -> None:
        """Record the stage and the device of an attempt."""
        if (attempt := self._attempts.get(token)) is not None:
            self._fleet.move(attempt, stage, device)
            if attempt.may_build:
                self._observers.work_changed()  # its builder may be free

    def complete(self, token: str, verdict: Verdict) -> bool:
        """End an attempt by its verdict.

        Returns:
            False if the token is not current: the verdict is ignored.
        """
        attempt = self._attempts.get(token)
        if attempt is None:
            if not self._attempts.settling(token):  # a repeated message is not a late one
                self._observers.tell(lambda observer: observer.stale_completion(token))
            return False
        self._attempts.settle(token)
        self._attempts.detach(attempt)
        self._observers.tell(lambda observer: observer.attempt_ended(attempt, verdict))
        failure = verdict.failure
        if failure is not None and is_handed_back(failure):
            attempt.job.attempts -= 1
            self._observers.tell(lambda observer: observer.retried(attempt.job, failure.cause))
            self._retries.put_back(attempt.job)
        elif failure is not None and failure.retryable:
            self._retries.blame(attempt.node)
            self._retries.retry(attempt, verdict)
        else:
            self._fleet.succeeded(attempt.node)
            if not self._retries.try_larger_device(attempt, verdict):
                self._evaluations.end_job(attempt.job, verdict)
        self._journal.after_commit(lambda: self._attempts.settled(token))
        self._observers.work_changed()
        return True

    def refuse(self, token: str, hold_seconds: float) -> None:
        """Put back a job that its node did not start, without counting an attempt.

        Args:
            token: Token of the attempt; ignored if it is not current.
            hold_seconds: How long the node gets no new attempts.
        """
        if (attempt := self._attempts.get(token)) is not None:
            job = attempt.job
            self._attempts.detach(attempt)
            refusal = Verdict.failed("NODE_REFUSED", "the node could not take the work at the moment", retryable=True)
            self._observers.tell(lambda observer: observer.attempt_ended(attempt, refusal))
            self._fleet.hold(attempt.node, self._clock.monotonic(), hold_seconds)
            job.attempts -= 1
            self._retries.put_back(job)
            self._observers.work_changed()
