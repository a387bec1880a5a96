"""What Prometheus reads of the scheduler. Never a label per request: labels come from closed sets, made up front."""

from __future__ import annotations

from kerneldyno.rpc.version import VERSION
from kerneldyno.scheduler.core import Core
from kerneldyno.scheduler.model import Attempt, Evaluation, Job, Node, NodeState, Priority, Verdict
from kerneldyno.scheduler.observer import Observer
from kerneldyno.scheduler.store.journal import ImmediateJournal, Journal, JournalObserver
from kerneldyno.v1 import evaluation_pb2
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

OUTCOMES = [name for name, number in evaluation_pb2.EvalResult.Outcome.items() if number]
#: Causes of a retry; anything else a node may invent is counted as OTHER.
CAUSES = [
    "NODE_LOST",
    "NODE_REFUSED",
    "NODE_PROTOCOL",
    "ATTEMPT_OVERDUE",
    "JUDGE_DIED",
    "NODE_STOPPED",
    "OTHER",
]
_REWARDS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)


class Metrics(Observer, JournalObserver):
    """Counters kept by observation, and gauges set by `sample`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, label: str = "", values: list[str] | None = None) -> Counter:
            made = Counter(f"kerneldyno_{name}", text, [label] if label else [], registry=registry)
            for value in values or []:
                made.labels(value)
            return made

        def gauge(name: str, text: str, label: str = "") -> Gauge:
            return Gauge(f"kerneldyno_{name}", text, [label] if label else [], registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"kerneldyno_{name}", text, buckets=_SECONDS, registry=registry)

        self.requests = counter("requests", "Requests received.", "client_kind", ["stream", "once"])
        self.stream_requests = self.requests.labels("stream")
        self.outcomes = counter("outcomes", "Finished evaluations.", "outcome", OUTCOMES)
        self._outcome_counters = {outcome: self.outcomes.labels(outcome) for outcome in OUTCOMES}
        self.attempts = counter("attempts", "Attempts placed on a node.")
        self.deduplications = counter(
            "deduplicated", "Evaluations that needed no run of their own.", "how", ["merged", "cached"]
        )
        self.retries = counter("retries", "Jobs put back after an attempt was lost.", "cause", CAUSES)
        self.nodes_lost = counter("nodes_lost", "Nodes that were lost.", "why", ["lease_expired", "found_dead"])
        self.impositions = counter("quarantines", "Quarantines imposed.", "kind", ["node", "work"])
        self.stale_completions = counter("stale_completions", "Results refused because their token was stale.")
        self.turns = counter("turns", "Turns answered.", "outcome", OUTCOMES)
        self.turns_without_reward = counter("turns_without_reward", "Turns answered without a reward.")
        self.rewards = Histogram("kerneldyno_reward", "Rewards given.", buckets=_REWARDS, registry=registry)
        self.remeasurements = counter("remeasurements", "Second measurements of anomalous speedups.")
        self.extraction_failures = counter("extraction_failures", "Responses without code.")
        self.queue_seconds = histogram("queue_seconds", "Wait from acceptance to an attempt.")
        self.evaluation_seconds = histogram("evaluation_seconds", "From a job's last placing to its result.")
        self.commit_seconds = histogram("journal_commit_seconds", "Duration of one group commit.")
        self.commit_records = Histogram(
            "kerneldyno_journal_commit_records",
            "Records in one group commit.",
            buckets=(1, 3, 10, 30, 100, 300, 1000, 3000),
            registry=registry,
        )
        self.commit_failures = counter("journal_commit_failures", "Group commits that failed and were tried again.")
        self.journal_pending = gauge("journal_pending_records", "Records that are not on disk yet.")
        self.journal_stalled = gauge("journal_stalled", "1 while the journal cannot be written.")
        self.quarantined_work = gauge("quarantined_work", "Digests of work in quarantine.")
        self.queue_depth = gauge("queue_depth", "Jobs that wait.", "priority")
        self.nodes = gauge("nodes", "Registered nodes.", "state")
        self.devices = gauge("devices", "Devices of the nodes that are not lost.")
        self.running = gauge("running", "Attempts that run.")
        self.loop_lag = gauge("event_loop_lag_seconds", "How late the last timer of the event loop was.")
        Info("kerneldyno_build", "What runs here.", registry=registry).info({"version": VERSION})

    def batch_committed(self, records: int, seconds: float) -> None:
        """Count and time a group commit."""
        self.commit_seconds.observe(seconds)
        self.commit_records.observe(records)

    def batch_failed(self, reason: str) -> None:
        """Count it."""
        self.commit_failures.inc()

    def sample(self, core: Core, journal: Journal | ImmediateJournal, lag_seconds: float) -> None:
        """Set the gauges."""
        self.journal_pending.set(journal.pending)
        self.journal_stalled.set(journal.stalled is not None)
        for priority in Priority:
            self.queue_depth.labels(priority.name.lower()).set(core.waiting.depth[priority])
        nodes = list(core.fleet.nodes.values())
        for state in NodeState:
            self.nodes.labels(state.value).set(sum(1 for node in nodes if node.state is state))
        self.devices.set(sum(len(node.report.devices) for node in core.fleet.live()))
        self.running.set(core.running())
        self.quarantined_work.set(len(core.quarantine.entries()))
        self.loop_lag.set(lag_seconds)

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Count it, and its wait."""
        self.attempts.inc()
        self.queue_seconds.observe(waited_seconds)

    def deduplicated(self, how: str) -> None:
        """Count what was saved."""
        self.deduplications.labels(how).inc()

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        """Count its time on nodes."""
        if seconds is not None:
            self.evaluation_seconds.observe(seconds)

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Count its outcome."""
        if evaluation.verdict is not None:
            self._outcome_counters[evaluation.verdict.outcome].inc()

    def turn_answered(self, outcome: str, reward: float | None) -> None:
        """Count it, and its reward."""
        self.turns.labels(outcome).inc()
        if reward is None:
            self.turns_without_reward.inc()
        else:
            self.rewards.observe(reward)

    def retried(self, job: Job, cause: str) -> None:
        """Count it by cause."""
        self.retries.labels(cause if cause in CAUSES else "OTHER").inc()

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """Count it."""
        self.nodes_lost.labels("lease_expired" if expired else "found_dead").inc()

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """Count it."""
        self.impositions.labels(kind).inc()

    def stale_completion(self, token: str) -> None:
        """Count it."""
        self.stale_completions.inc()
