"""The scheduler's trace spans of each evaluation: its acceptance, its waits, its attempts, and the whole.

The observer exists only if tracing is configured. A span is sent when it ends, and all that it needs is also in the journal:
the trace of an evaluation is recorded with its acceptance, and the span id of an attempt follows from its token. Spans of
work during which the scheduler crashed therefore belong to one trace, whichever process ends them. docs/tracing.md shows a
complete trace.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kerneldyno.rpc.trace_context import TraceContext, decode
from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.core.model import Attempt, Evaluation, Job, Verdict
from kerneldyno.scheduler.core.observer import Observer
from kerneldyno.scheduler.core.ports import Journal

if TYPE_CHECKING:  # imported only where tracing is configured
    from kerneldyno.rpc.span_export import Attributes, Spans

EVALUATION, ACCEPT, QUEUE, ATTEMPT = (
    f"kerneldyno.scheduler.{name}" for name in ("evaluation", "accept", "queue", "attempt")
)


def client_trace(attempt: Attempt) -> TraceContext | None:
    """Return the trace context that a node gets with an attempt if the scheduler is not traced: the client's span."""
    return decode(attempt.job.trace)


@dataclass(frozen=True, slots=True)
class _Past:
    """The last attempt of an unfinished job that has ended."""

    span: TraceContext
    ended_wall: float


class EvaluationSpans(Observer):
    """Creates the spans. Its memory is bounded by the number of unfinished jobs."""

    def __init__(self, spans: Spans, journal: Journal, clock: Clock) -> None:
        self._spans = spans
        self._journal = journal
        self._clock = clock
        self._last_attempts: dict[bytes, _Past] = {}

    def request_trace(self, trace: str) -> str:
        """Begin the scheduler's own span of a request, as a child of `trace` unless that is empty; return it encoded."""
        return self._spans.begin(EVALUATION, decode(trace)).text

    def attempt_trace(self, attempt: Attempt) -> TraceContext | None:
        """Return the trace context that a node gets with an attempt: the scheduler's span of the attempt."""
        above = decode(attempt.job.trace)
        return self._span_of(attempt, above) if above is not None and above.sampled else above

    # Events of the state machine

    def evaluation_accepted(self, evaluation: Evaluation) -> None:
        """Send the span of the acceptance once it is on disk."""
        if (whole := _ours(evaluation.trace)) is not None:
            self._journal.after_commit(lambda: self._accept(evaluation, whole))

    def attempt_started(self, attempt: Attempt, waited_seconds: float) -> None:
        """Send the span of the wait."""
        job = attempt.job
        if (above := _sampled(job.trace)) is None:
            return
        past = self._last_attempts.get(job.id)
        if past is not None:
            since = past.ended_wall
        else:
            own = (one.accepted_wall for one in job.evaluations.values() if one.trace == job.trace)
            since = next(own, job.placed_wall - waited_seconds)
        attributes: Attributes = {"kerneldyno.attempt.number": job.attempts, "kerneldyno.priority": job.priority.name}
        self._spans.emit(QUEUE, self._spans.child(above), since, job.placed_wall, attributes)

    def attempt_ended(self, attempt: Attempt, verdict: Verdict) -> None:
        """Send the span of the attempt, with a link to the previous attempt."""
        job = attempt.job
        if (above := _sampled(job.trace)) is None:
            return
        span, ended_wall, before = self._span_of(attempt, above), self._clock.wall(), self._last_attempts.get(job.id)
        self._last_attempts[job.id] = _Past(span, ended_wall)
        self._spans.emit(
            ATTEMPT,
            span,
            job.placed_wall,
            ended_wall,
            {
                "kerneldyno.attempt.number": job.attempts,
                "kerneldyno.attempt.token": attempt.token,
                "kerneldyno.node.id": attempt.node.id,
                "kerneldyno.device": attempt.device,
                "kerneldyno.outcome": verdict.outcome,
                "rpc.system.name": "grpc",
                "rpc.method": "kerneldyno.v1.FleetService/Work",
            },
            kind="CLIENT",
            error=_error(verdict),
            links=[before.span] if before is not None else [],
        )

    def job_done(self, job: Job, verdict: Verdict, seconds: float | None) -> None:
        """Forget the attempts of the job."""
        self._last_attempts.pop(job.id, None)

    def evaluation_done(self, evaluation: Evaluation) -> None:
        """Send the span of the whole evaluation once the verdict is on disk."""
        if (whole := _ours(evaluation.trace)) is not None:
            self._journal.after_commit(lambda: self._finish(evaluation, whole))

    # Spans

    def _accept(self, evaluation: Evaluation, whole: TraceContext) -> None:
        span = self._spans.child(whole)
        self._spans.emit(ACCEPT, span, evaluation.accepted_wall, self._clock.wall(), {})

    def _finish(self, evaluation: Evaluation, whole: TraceContext) -> None:
        verdict = evaluation.verdict
        assert verdict is not None, "a finished evaluation has a verdict"
        joined = decode(evaluation.joined_trace)
        self._spans.emit(
            EVALUATION,
            whole,
            evaluation.accepted_wall,
            self._clock.wall(),
            {
                "kerneldyno.client.id": evaluation.key.client_id,
                "kerneldyno.evaluation.id": evaluation.key.id,
                "kerneldyno.digest": evaluation.digest.hex(),
                "kerneldyno.outcome": verdict.outcome,
                "kerneldyno.attempts": evaluation.attempts,
                "kerneldyno.answered_by": "cached" if verdict.cached else "merged" if evaluation.merged else "run",
            },
            kind="SERVER",
            error=_error(verdict),
            links=[joined] if joined is not None and joined.span_id != whole.span_id else [],
        )

    def _span_of(self, attempt: Attempt, above: TraceContext) -> TraceContext:
        """Return the span of an attempt. It is the same after a restart of the scheduler."""
        token = hashlib.blake2b(attempt.token.encode(), digest_size=8).digest()
        return self._spans.child(above, int.from_bytes(token) or 1)


def _sampled(trace: str) -> TraceContext | None:
    context = decode(trace)
    return context if context is not None and context.sampled else None


def _ours(trace: str) -> TraceContext | None:
    """Return the scheduler's own span of an evaluation if it is sampled; None also if it was accepted without tracing."""
    context = _sampled(trace)
    return context if context is not None and context.parent_id is not None else None


def _error(verdict: Verdict) -> str:
    """Return the cause of an infrastructure failure. A wrong candidate is no error of the service."""
    return verdict.failure.cause if verdict.failure is not None else ""
