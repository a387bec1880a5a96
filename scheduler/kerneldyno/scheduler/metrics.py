"""What Prometheus reads of the scheduler. Never a label per request: labels come from closed sets, made up front."""

from __future__ import annotations

from kerneldyno.rpc.metric_series import Series
from kerneldyno.scheduler.ages import JobClass
from kerneldyno.scheduler.core import Core
from kerneldyno.scheduler.model import Attempt, ClientKind, Evaluation, Job, Node, NodeState, Priority, Verdict
from kerneldyno.scheduler.observer import Observer
from kerneldyno.scheduler.store.journal import ImmediateJournal, Journal, JournalObserver
from kerneldyno.v1 import evaluation_pb2
from prometheus_client import CollectorRegistry

OUTCOMES = [name for name, number in evaluation_pb2.EvalResult.Outcome.items() if number]
#: Why infrastructure failed an attempt; anything else a node may invent is counted as OTHER.
CAUSES = (
    "NODE_LOST",
    "NODE_REFUSED",
    "NODE_PROTOCOL",
    "NODE_STOPPED",
    "ATTEMPT_LOST",
    "ATTEMPT_OVERDUE",
    "JUDGE_DIED",
    "JUDGE_ERROR",
    "RUNNER_START_FAILED",
    "RUNNER_LOST",
    "DEVICE_BUSY",
    "DEVICE_MEMORY",
    "OTHER",
)
#: Why a job went back to the line: also because it was too large for its device, and a larger one is there.
_RETRY_CAUSES = (*CAUSES, "PROBLEM_TOO_LARGE")
#: Why an evaluation ended without a verdict; the first three are its client's doing.
FINAL_CAUSES = ("CANCELLED", "DEADLINE_EXCEEDED", "CLIENT_GONE", "NO_MATCHING_DEVICE", "POISON", "QUARANTINED", *CAUSES)
#: By which calls requests come; a job may also be an earlier process's.
_CALLS = (ClientKind.REWARDS, ClientKind.STREAM, ClientKind.ONCE)
_REWARDS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_RECORDS = (1, 3, 10, 30, 100, 300, 1000, 3000)
_ATTEMPTS = (0, 1, 2, 3, 4, 5, 10)


class Metrics(Observer, JournalObserver):
    """Counters kept by observation, and gauges set by `sample`."""

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
        # A histogram with buckets below 0 has no sum on the page, and counters only grow: hence one for each sign.
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
        self._journal_pending = gauge("journal_pending_records", "Records that are not on disk yet.")
        self._journal_stalled = gauge("journal_stalled", "1 while the journal cannot be written.")

        self._nodes = gauge("nodes", "Registered nodes.", state=[state.value for state in NodeState])
        self._devices = gauge("devices", "Devices of the nodes that are not lost.")
        self._lanes = gauge("lanes", "Lanes of these devices that are ready.")
        self._running = gauge("running", "Attempts that run.")

    # What calls tell

    def requested(self, kind: ClientKind) -> None:
        """Count a request, valid or not."""
        self._requests.labels(kind.value).inc()

    def refused(self) -> None:
        """Count a malformed request of a stream among the outcomes: it is answered by a result."""
        self._outcomes.labels("INVALID").inc()

    def turn_answered(self, outcome: str, reward: float | None, seconds: float) -> None:
        """Count it, its reward, and how long it took."""
        self._turns.labels(outcome).inc()
        self._turn_seconds.observe(seconds)
        if reward is None:
            self._turns_without_reward.inc()
        else:
            self._rewards.observe(reward)
            self._points.labels("positive" if reward >= 0 else "negative").inc(abs(reward))

    # What the journal tells

    def batch_committed(self, records: int, seconds: float) -> None:
        """Count and time a group commit."""
        self._commit_seconds.observe(seconds)
        self._commit_records.observe(records)

    def batch_failed(self, reason: str) -> None:
        """Count it."""
        self._commit_failures.inc()

    # What the state machine tells

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Count it, and its wait."""
        job = attempt.job
        self._placements.inc()
        self._queue_seconds.labels(_name(job.priority), job.kind.value).observe(waited_seconds)

    def deduplicated(self, how: str) -> None:
        """Count what was saved."""
        self._deduplicated.labels(how).inc()

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        """Count its attempts, and its time on nodes."""
        self._attempts.observe(job.attempts)
        if seconds is not None:
            self._evaluation_seconds.observe(seconds)

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Count its outcome, and the time it took."""
        verdict = evaluation.verdict
        assert verdict is not None, "a finished evaluation has a verdict"
        self._outcomes.labels(verdict.outcome).inc()
        self._turnaround.observe(max(0.0, evaluation.finished_wall - evaluation.accepted_wall))
        if verdict.outcome == "INFRASTRUCTURE_ERROR":
            cause = verdict.failure.cause if verdict.failure else "OTHER"
            self._errors.labels(cause if cause in FINAL_CAUSES else "OTHER").inc()

    def retried(self, job: Job, cause: str) -> None:
        """Count it by cause."""
        self._retries.labels(cause if cause in _RETRY_CAUSES else "OTHER").inc()

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """Count it."""
        self._nodes_lost.labels("lease_expired" if expired else "found_dead").inc()

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """Count it."""
        self._quarantines.labels(kind).inc()

    def stale_completion(self, token: str) -> None:
        """Count it."""
        self._stale_completions.inc()

    # What is looked at

    def sample(self, core: Core, journal: Journal | ImmediateJournal, waiting_calls: int, now: float) -> None:
        """Set the gauges; `now` is the state machine's monotonic time."""
        self._journal_pending.set(journal.pending)
        self._journal_stalled.set(journal.stalled is not None)
        ages = core.waiting.ages
        for priority in Priority:
            for kind in ClientKind:
                one, labels = JobClass(priority, kind), (_name(priority), kind.value)
                since = ages.oldest(one)
                self._queue_depth.labels(*labels).set(ages.depth[one])
                self._queue_oldest.labels(*labels).set(0.0 if since is None else max(0.0, now - since))
        self._backlog.set(core.backlog())
        self._waiting_calls.set(waiting_calls)
        nodes = list(core.fleet.nodes.values())
        for state in NodeState:
            self._nodes.labels(state.value).set(sum(1 for node in nodes if node.state is state))
        devices = [device for node in core.fleet.live() for device in node.report.devices]
        self._devices.set(len(devices))
        self._lanes.set(sum(device.lanes for device in devices if device.ready))
        self._running.set(core.running())
        self._quarantined_work.set(len(core.quarantine.entries()))


def _name(priority: Priority) -> str:
    return priority.name.lower()
