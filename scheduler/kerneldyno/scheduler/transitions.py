"""One log line for each transition of the state machine, key=value. Nothing else in the scheduler logs them."""

from __future__ import annotations

import logging

from kerneldyno.scheduler.core import Observer
from kerneldyno.scheduler.model import Attempt, Evaluation, Node

log = logging.getLogger(__name__)


class TransitionLog(Observer):
    """Writes down what happens."""

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Tell where an evaluation went."""
        key = attempt.evaluation.key
        log.info(
            "event=attempt_started client=%r id=%r attempt=%s node=%s waited_seconds=%.3f",
            *(*key, attempt.token, attempt.node.id, waited_seconds),
        )

    def finished(self, evaluation: Evaluation, seconds: float | None) -> None:
        """Tell how an evaluation ended."""
        verdict = evaluation.verdict
        assert verdict is not None, "a finished evaluation has a verdict"
        cause = verdict.failure.cause if verdict.failure else "-"
        log.info(
            "event=evaluation_done client=%r id=%r outcome=%s cause=%s attempts=%d seconds=%.3f",
            *(*evaluation.key, verdict.outcome, cause, evaluation.attempts, seconds or 0.0),
        )

    def retried(self, evaluation: Evaluation, cause: str) -> None:
        """Tell why an attempt was not the last."""
        log.warning("event=evaluation_retried client=%r id=%r cause=%s", *evaluation.key, cause)

    def node_joined(self, node: Node) -> None:
        """Tell who came."""
        report = node.report
        devices = ",".join(device.name for device in report.devices)
        log.info("event=node_joined node=%s address=%s devices=%s", node.id, report.address, devices)

    def lease_expired(self, node: Node) -> None:
        """Tell who was lost."""
        log.warning("event=node_lost node=%s address=%s", node.id, node.report.address)

    def stale_completion(self, token: str) -> None:
        """Tell of a result that came too late."""
        log.warning("event=stale_completion attempt=%s", token)
