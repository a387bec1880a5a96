"""Which waiting job runs next, and on which node."""

from __future__ import annotations

from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Attempt, Job, Node
from kerneldyno.scheduler.core.records import Placed
from kerneldyno.scheduler.core.retries import Retries


class Placement:
    """Takes jobs from the queue and creates their attempts."""

    def __init__(
        self,
        context: Context,
        *,
        fleet: Fleet,
        attempts: Attempts,
        queue: FairQueue,
        retries: Retries,
    ) -> None:
        self.enabled = True
        """False during a stop: nothing is placed any more."""
        self._clock = context.clock
        self._new_token = context.new_token
        self._journal = context.journal
        self._observers = context.observers
        self._fleet = fleet
        self._attempts = attempts
        self._queue = queue
        self._retries = retries

    def place(self) -> list[Attempt]:
        """Place all jobs that can be placed now, and return their attempts for the dispatcher to send."""
        placed: list[Attempt] = []
        while self.enabled and (choice := self._choose()) is not None:
            job, node = choice
            self._queue.take(job)
            now = self._clock.monotonic()
            attempt = Attempt(self._new_token(), job, node, now)
            job.attempts += 1
            job.placed_at, job.placed_wall = now, self._clock.wall()
            self._attempts.attach(attempt, last_try=self._retries.is_last_try(job))
            node.remember(job.spec.reference)
            self._journal.append(
                Placed(job.id, attempt.token, node.id, node.report.instance_id, job.attempts, job.placed_wall)
            )
            placed.append(attempt)
            waited = now - job.queued_at
            for observer in self._observers:
                observer.attempt_started(attempt, waited)
        if placed:
            self._observers.room_made()
        return placed

    def _choose(self) -> tuple[Job, Node] | None:
        now = self._clock.monotonic()
        for job in self._queue.heads():
            node = self._fleet.choose(job, now, last_try=self._retries.is_last_try(job))
            if node is not None:
                if self._fleet.hot_elsewhere(job, node, now):
                    job = self._queue.prefer_hot(job, node.hot, now)
                return job, node
        return None
