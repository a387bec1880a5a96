"""The scheduler's Prometheus metrics. All label values come from closed sets and exist from the start."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kerneldyno.rpc.metric_series import Series
from kerneldyno.scheduler.core.core import Core
from kerneldyno.scheduler.core.model import Attempt, ClientKind, Evaluation, Job, Node, NodeState, Priority, Verdict
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import JournalObserver, ServedJournal
from kerneldyno.scheduler.core.queue_ages import JobClass
from kerneldyno.scheduler.telemetry.role_metrics import OPERATIONS
from kerneldyno.v1 import evaluation_pb2

OUTCOMES = [name for name, number in evaluation_pb2.EvalResult.Outcome.items() if number]
#: Causes of infrastructure failures of attempts. An unknown cause that a node sends is counted as OTHER.
CAUSES = (
    "NODE_LOST",
    "NODE_REFUSED",
    "NODE_PROTOCOL",
    "NODE_STOPPED",
    "ATTEMPT_LOST",
    "ATTEMPT_OVERDUE",
    "JUDGE_DIED",
    "JUDGE_ERROR",
    "REQUEST_UNREADABLE",
    "RUNNER_START_FAILED",
    "RUNNER_LOST",
    "DEVICE_BUSY",
    "DEVICE_MEMORY",
    "OTHER",
)
#: Reasons why a job goes back to the queue: also that it was too large for its device.
_RETRY_CAUSES = (*CAUSES, "PROBLEM_TOO_LARGE")
#: Causes of evaluations that ended without a verdict. The first three come from the client.
FINAL_CAUSES = ("CANCELLED", "DEADLINE_EXCEEDED", "CLIENT_GONE", "NO_MATCHING_DEVICE", "POISON", "QUARANTINED", *CAUSES)
#: The calls by which requests arrive. Only jobs, not requests, can also be recovered ones.
_CALLS = (ClientKind.REWARDS, ClientKind.STREAM, ClientKind.ONCE)
_REWARDS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_RECORDS = (1, 3, 10, 30, 100, 300, 1000, 3000)
_ATTEMPTS = (0, 1, 2, 3, 4, 5, 10)


class Metrics(Observer, JournalObserver):
    """Counters and histograms that events update, and gauges that `sample` sets."""

    def __init__(self, registry: CollectorRegistry, max_queued: int) -> None:
        make = Series(registry)
        counter, gauge, histogram = make.counter, make.gauge, make.histogram
        classes = {"priority": [_name(p) for p in Priority], "client_kind": [kind.value for kind in ClientKind]}

        self._requests = counter("requests", "Requests received.", client_kind=[kind.value for kind in _CALLS])
        self._outcomes = counter("outcomes", "Finished evaluations.", outcome=OUTCOMES)
        self._errors = counter("infrastructure_errors", "Evaluations that ended without a verdict.", cause=FINAL_CAUSES)
        self._deduplicated = counter(
            "deduplicated", "Evaluations that needed no run of their own.", how=["merged", "cached"]
        )
        self._placements = counter("placements", "Attempts placed on a node.")
        self._retries = counter("retries", "Jobs put back after an attempt.", cause=_RETRY_CAUSES)
        self._attempts = histogram("evaluation_attempts", "Attempts that a finished job took.", _ATTEMPTS)
        self._nodes_lost = counter("nodes_lost", "Nodes that were lost.", why=["lease_expired", "found_dead"])
        self._quarantines = counter("quarantines", "Quarantines imposed.", kind=["node", "work"])
        self._quarantined_work = gauge("quarantined_work", "Digests of work in quarantine.")
        self._stale_completions = counter("stale_completions", "Results refused because their token was stale.")

        self._turns = counter("turns", "Turns answered.", outcome=OUTCOMES)
        self._turns_without_reward = counter("turns_without_reward", "Turns answered without a reward.")
        self._turn_seconds = histogram("turn_seconds", "From a turn's arrival to its answer.")
        self._rewards = histogram("reward", "Rewards given.", _REWARDS)
        # A histogram with buckets below 0 has no sum in Prometheus, and counters only grow: hence one counter for each sign.
        self._points = counter("reward_points", "Sum of the rewards given, by sign.", sign=["positive", "negative"])
        self.remeasurements = counter("remeasurements", "Second measurements of anomalous speedups.")
        self.extraction_failures = counter("extraction_failures", "Responses without code.")

        self._queue_seconds = histogram("queue_seconds", "Wait from acceptance to an attempt.", **classes)
        self._queue_depth = gauge("queue_depth", "Jobs that wait.", **classes)
        self._queue_oldest = gauge("queue_oldest_seconds", "Age of the oldest job that waits.", **classes)
        self._backlog = gauge("backlog_evaluations", "Unfinished evaluations, less the attempts that run.")
        gauge("backlog_evaluations_limit", "How many of these there may be.").set(max_queued)
        self._waiting_calls = gauge("waiting_calls", "Streams that wait for room.")
        self._evaluation_seconds = histogram("evaluation_seconds", "From a job's last placing to its result.")
        self._turnaround = histogram("turnaround_seconds", "From an evaluation's acceptance to its verdict.")

        self._commit_seconds = histogram("journal_commit_seconds", "Duration of one group commit.")
        self._commit_records = histogram("journal_commit_records", "Records in one group commit.", _RECORDS)
        self._commit_failures = counter("journal_commit_failures", "Group commits that failed and were tried again.")
        self._store_seconds = histogram(
            "store_seconds", "Duration of one operation of the store.", operation=OPERATIONS
        )
        self._journal_pending = gauge("journal_pending_records", "Records that are not on disk yet.")
        self._journal_stalled = gauge("journal_stalled", "1 while the journal cannot be written.")

        self._nodes = gauge("nodes", "Registered nodes.", state=[state.value for state in NodeState])
        self._devices = gauge("devices", "Devices of the nodes that are not lost.")
        self._lanes = gauge("lanes", "Lanes of these devices that are ready.")
        self._running = gauge("running", "Attempts that run.")
        self._building = gauge("building", "Attempts among these that build native code and take no lane.")

    # Events of calls

    def requested(self, kind: ClientKind) -> None:
        """Count a request, valid or not."""
        self._requests.labels(kind.value).inc()

    def refused(self) -> None:
        """Count an invalid request of a stream as an outcome, because it is answered by a result."""
        self._outcomes.labels("INVALID").inc()

    def turn_answered(self, outcome: str, reward: float | None, seconds: float) -> None:
        """Count an answered turn, its reward, and the seconds from its arrival to its answer."""
        self._turns.labels(outcome).inc()
        self._turn_seconds.observe(seconds)
        if reward is None:
            self._turns_without_reward.inc()
        else:
            self._rewards.observe(reward)
            self._points.labels("positive" if reward >= 0 else "negative").inc(abs(reward))

    # Events of the journal

    def batch_committed(self, records: int, seconds: float) -> None:
        """Count and time a group commit."""
        self._commit_seconds.observe(seconds)
        self._commit_records.observe(records)

    def batch_failed(self, reason: str) -> None:
        """Count a group commit that failed."""
        self._commit_failures.inc()

    # Events of the store

    def store_used(self, operation: str, seconds: float) -> None:
        """Time an operation of the store. May be called in any thread."""
        self._store_seconds.labels(operation).observe(seconds)

    # Events of the state machine

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Count an attempt and the wait before it."""
        job = attempt.job
        self._placements.inc()
        self._queue_seconds.labels(_name(job.priority), job.kind.value).observe(waited_seconds)

    def deduplicated(self, how: str) -> None:
        """Count a saved run."""
        self._deduplicated.labels(how).inc()

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        """Count a job's attempts and its time on its last node."""
        self._attempts.observe(job.attempts)
        if seconds is not None:
            self._evaluation_seconds.observe(seconds)

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Count an evaluation's outcome and its time from acceptance to verdict."""
        verdict = evaluation.verdict
        assert verdict is not None, "a finished evaluation has a verdict"
        self._outcomes.labels(verdict.outcome).inc()
        self._turnaround.observe(max(0.0, evaluation.finished_wall - evaluation.accepted_wall))
        if verdict.outcome == "INFRASTRUCTURE_ERROR":
            cause = verdict.failure.cause if verdict.failure else "OTHER"
            self._errors.labels(cause if cause in FINAL_CAUSES else "OTHER").inc()

    def retried(self, job: Job, cause: str) -> None:
        """Count a retry by its cause."""
        self._retries.labels(cause if cause in _RETRY_CAUSES else "OTHER").inc()

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """Count a lost node."""
        self._nodes_lost.labels("lease_expired" if expired else "found_dead").inc()

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """Count a quarantine."""
        self._quarantines.labels(kind).inc()

    def stale_completion(self, token: str) -> None:
        """Count a stale result."""
        self._stale_completions.inc()

    # Gauges

    def sample(self, core: Core, journal: ServedJournal, waiting_calls: int, now: float) -> None:
        """Set the gauges; `now` is the state machine's monotonic time in seconds."""
        self._journal_pending.set(journal.pending)
        self._journal_stalled.set(journal.stalled is not None)
        ages = core.queue.ages
        for priority in Priority:
            for kind in ClientKind:
                one, labels = JobClass(priority, kind), (_name(priority), kind.value)
                since = ages.oldest(one)
                self._queue_depth.labels(*labels).set(ages.depth[one])
                self._queue_oldest.labels(*labels).set(0.0 if since is None else max(0.0, now - since))
        self._backlog.set(core.requests.backlog())
        self._waiting_calls.set(waiting_calls)
        nodes = list(core.fleet.nodes.values())
        for state in NodeState:
            self._nodes.labels(state.value).set(sum(1 for node in nodes if node.state is state))
        devices = [device for node in core.fleet.live() for device in node.report.devices]
        self._devices.set(len(devices))
        self._lanes.set(sum(device.lanes for device in devices if device.ready))
        self._running.set(len(core.attempts))
        self._building.set(sum(node.building for node in nodes))
        self._quarantined_work.set(len(core.quarantine.entries()))


def _name(priority: Priority) -> str:
    return priority.name.lower()
