"""The scheduler's state machine, composed of its parts: requests, placement, results, retries and nodes.

Every method is synchronous and takes effect at once. Time, tokens, the journal and the store are injected. Each decision is
appended to the journal as a record, and clients and nodes are told of it once the record is on disk; a crash therefore never
takes back anything that was told. The gRPC services call the parts (`core.requests.submit(...)`), and observers are notified
of what changed.
"""

from __future__ import annotations

from collections.abc import Callable

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.capabilities import Capabilities
from kerneldyno.scheduler.core.clients import Clients
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.evaluations import Evaluations
from kerneldyno.scheduler.core.fair_queue import FairQueue
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Attempt, Job, Priority, Spec
from kerneldyno.scheduler.core.nodes import Nodes
from kerneldyno.scheduler.core.observer import Observers
from kerneldyno.scheduler.core.placement import Placement
from kerneldyno.scheduler.core.ports import Journal, Store
from kerneldyno.scheduler.core.quarantine import Quarantine
from kerneldyno.scheduler.core.records import Recovered, StoredEvaluation, StoredJob, restored
from kerneldyno.scheduler.core.requests import Requests
from kerneldyno.scheduler.core.results import Results
from kerneldyno.scheduler.core.retries import Retries
from kerneldyno.scheduler.core.unmatched import Unmatched
from kerneldyno.scheduler.settings import Settings

#: Seconds between two calls of `tick`.
TICK_SECONDS = 0.25


class Core:
    """The state machine. Its attributes are its parts; the methods here concern all of them."""

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
        """Create an empty state machine.

        Args:
            settings: Limits and times.
            clock: The source of all times.
            new_token: Returns a new unique attempt token.
            store: Answers requests for what is no longer in memory.
            journal: Makes records durable.
            fingerprint: Maps (a node's serialised environment, a device model) to the digest of that environment.
        """
        self._settings = settings
        self._clock = clock
        self._last_tick = clock.monotonic()
        self.observers = Observers()
        context = Context(settings, clock, new_token, store, journal, self.observers)
        # State.
        self.fleet = Fleet(settings.heartbeat_seconds, settings.lease_seconds, fingerprint)
        self.queue = FairQueue()
        self.attempts = Attempts(self.fleet, self.observers)
        self.clients = Clients(settings.max_queued_per_client, settings.client_grace_seconds)
        self.quarantine = Quarantine(settings.quarantine_seconds, clock, journal)
        self.evaluations = Evaluations(context, attempts=self.attempts, clients=self.clients, queue=self.queue)
        self._unmatched = Unmatched(self.fleet, settings)
        # Decisions.
        self.capabilities = Capabilities(self.fleet, self._unmatched, clock)
        self.retries = Retries(
            context,
            fleet=self.fleet,
            capabilities=self.capabilities,
            attempts=self.attempts,
            queue=self.queue,
            quarantine=self.quarantine,
            evaluations=self.evaluations,
        )
        self.requests = Requests(
            context,
            fleet=self.fleet,
            clients=self.clients,
            queue=self.queue,
            attempts=self.attempts,
            evaluations=self.evaluations,
            retries=self.retries,
        )
        self.placement = Placement(
            context, fleet=self.fleet, attempts=self.attempts, queue=self.queue, retries=self.retries
        )
        self.results = Results(
            context, fleet=self.fleet, attempts=self.attempts, evaluations=self.evaluations, retries=self.retries
        )
        self.nodes = Nodes(
            context, fleet=self.fleet, attempts=self.attempts, retries=self.retries, unmatched=self._unmatched
        )

    def recover(self, found: Recovered, read_spec: Callable[[bytes], Spec]) -> None:
        """Take over the unfinished work of an earlier process.

        Jobs with an attempt wait for their node to report its token; all others wait in the queue.

        Args:
            found: What the store returned.
            read_spec: Parses `StoredJob.payload`.
        """
        now, wall = self._clock.monotonic(), self._clock.wall()
        if found.jobs:
            self.capabilities.unknown_for(self._settings.lease_seconds)
        self.quarantine.restore(found.quarantined)
        for node_id in found.drained_nodes:
            self.fleet.set_drained(node_id, True)
        for old in found.jobs:
            self._recover_job(old, read_spec(old.payload), now, wall)
        for one in found.evaluations:
            self._recover_evaluation(one, now, wall)
        for job in list(self.evaluations.jobs.values()):
            if job.attempt is None and not self.retries.end_if_quarantined(job):
                self.queue.add(job)
        self._last_tick = now
        self.observers.work_changed()

    def tick(self) -> None:
        """End leases, deadlines and waits that are over. Call this every TICK_SECONDS."""
        now = self._clock.monotonic()
        heartbeat, late = self._settings.heartbeat_seconds, now - self._last_tick - TICK_SECONDS
        self._last_tick = now
        if late > 2 * heartbeat:
            self.fleet.renew_all(now)  # this process was suspended and could not receive heartbeats
        elif late > heartbeat / 2:
            self.fleet.extend_all(late)  # it was too busy to read heartbeats for this long
        self.nodes.lose_expired(now)
        self.requests.cancel_unwanted(now)
        self.retries.end_overdue(now)
        for job, verdict in self._unmatched.overdue(self.queue, now, fleet_known=self.capabilities.known()):
            # If the larger device is gone again, the verdict of the smaller one counts.
            self.evaluations.end_job(job, job.too_large_verdict or verdict)
        self.observers.work_changed()  # the hold of a node may have ended

    def _recover_job(self, old: StoredJob, spec: Spec, now: float, wall: float) -> None:
        job = Job(old.job_id, spec, old.share, Priority.LOW, now)
        job.attempts, job.crashes, job.trace = old.attempts, old.crashes, old.trace
        job.unlucky_nodes = set(old.unlucky_nodes)
        self.evaluations.jobs[job.id] = job
        if old.token:
            node = self.fleet.restore(old.node_id, old.instance_id, now, wall)
            job.placed_at, job.placed_wall = now, old.placed_wall
            self.attempts.attach(Attempt(old.token, job, node, now), last_try=self.retries.is_last_try(job))

    def _recover_evaluation(self, one: StoredEvaluation, now: float, wall: float) -> None:
        assert one.job_id is not None, "an unfinished evaluation has a job"
        waited = max(0.0, wall - one.accepted_wall)
        evaluation = restored(one, now - waited)
        if one.deadline_wall is not None:
            evaluation.deadline_at = now + max(0.0, one.deadline_wall - wall)
        self.evaluations.join(evaluation, self.evaluations.jobs[one.job_id])
        self.clients.mark_absent(one.key.client_id, now)
