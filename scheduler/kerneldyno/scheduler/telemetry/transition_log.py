"""Logs one line for each transition of the state machine, as event=name key=value. No other module logs transitions."""

from __future__ import annotations

import logging

from kerneldyno.scheduler.core.model import Attempt, Evaluation, Job, Node
from kerneldyno.scheduler.core.observer import Observer

_log = logging.getLogger(__name__)


class TransitionLog(Observer):
    """Logs the transitions."""

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Log where a job was placed."""
        _log.info(
            "event=attempt_started work=%s attempt=%s node=%r waited_seconds=%.3f",
            *(_short(attempt.job), attempt.token, attempt.node.id, waited_seconds),
        )

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Log how an evaluation ended."""
        verdict = evaluation.verdict
        assert verdict is not None, "a finished evaluation has a verdict"
        cause = verdict.failure.cause if verdict.failure else "-"
        how = "cached" if verdict.cached else "merged" if evaluation.merged else "run"
        _log.info(
            "event=evaluation_done client=%r id=%r work=%s outcome=%s cause=%s attempts=%d answered_by=%s",
            *(*evaluation.key, evaluation.digest.hex()[:12], verdict.outcome, cause, evaluation.attempts, how),
        )

    def retried(self, job: Job, cause: str) -> None:
        """Log why a job runs again."""
        _log.warning("event=job_retried work=%s cause=%s attempts=%d", _short(job), cause, job.attempts)

    def node_joined(self, node: Node) -> None:
        """Log a node that registered."""
        report = node.report
        devices = ",".join(device.name for device in report.devices)
        _log.info("event=node_joined node=%r address=%r devices=%r", node.id, report.address or "-", devices)

    def node_lost(self, node: Node, *, expired: bool) -> None:
        """Log a node that was lost."""
        why = "lease_expired" if expired else "found_dead"
        _log.warning("event=node_lost node=%r address=%r why=%s", node.id, node.report.address or "-", why)

    def quarantined(self, kind: str, subject: str, reason: str) -> None:
        """Log what was put into quarantine."""
        _log.warning("event=quarantined %s=%r reason=%r", kind, subject, reason)

    def stale_completion(self, token: str) -> None:
        """Log a result that arrived under a stale token."""
        _log.warning("event=stale_completion attempt=%r", token)


def _short(job: Job) -> str:
    return job.digest.hex()[:12]
