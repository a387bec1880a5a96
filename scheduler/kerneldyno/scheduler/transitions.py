"""One log line for each transition of the state machine, key=value. Nothing else in the scheduler logs them."""

from __future__ import annotations

import logging

from kerneldyno.scheduler.model import Attempt, Evaluation, Job, Node
from kerneldyno.scheduler.observer import Observer

log = logging.getLogger(__name__)


class TransitionLog(Observer):
    """Writes down what happens."""

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Tell where a job went."""
        log.info(
            "event=attempt_started work=%s attempt=%s node=%r waited_seconds=%.3f",
            *(_short(attempt.job), attempt.token, attempt.node.id, waited_seconds),
        )

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Tell how an evaluation ended."""
        verdict = evaluation.verdict
        assert verdict is not None, "a finished evaluation has a verdict"
        cause = verdict.failure.cause if verdict.failure else "-"
        how = "cached" if verdict.cached else "merged" if evaluation.merged else "run"
        log.info(
            "event=evaluation_done client=%r id=%r work=%s outcome=%s cause=%s attempts=%d answered_by=%s",
            *(*evaluation.key, evaluation.digest.hex()[:12], verdict.outcome, cause, evaluation.attempts, how),
        )

    def retried(self, job: Job, cause: str) -> None:
        """Tell why an attempt was not the last."""
        log.warning("event=job_retried work=%s cause=%s attempts=%d", _short(job), cause, job.attempts)

    def node_joined(self, node: Node) -> None:
        """Tell who came."""
        report = node.report
        devices = ",".join(device.name for device in report.devices)
        log.info("event=node_joined node=%r address=%r devices=%r", node.id, report.address or "-", devices)

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """Tell who was lost."""
        why = "lease_expired" if expired else "found_dead"
        log.warning("event=node_lost node=%r address=%r why=%s", node.id, node.report.address or "-", why)

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """Tell what is kept from running."""
        log.warning("event=quarantined %s=%r reason=%r", kind, subject, reason)

    def stale_completion(self, token: str) -> None:
        """Tell of a result that came too late."""
        log.warning("event=stale_completion attempt=%r", token)


def _short(job: Job) -> str:
    return job.digest.hex()[:12]
