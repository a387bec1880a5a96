"""Results that the server writes itself when no judge can: infrastructure failures, and sources that ended the judge.

They say nothing about the candidate. All other results come from the judge.
"""

from __future__ import annotations

from kerneldyno.v1 import evaluation_pb2 as pb


def infrastructure_error(cause: str, detail: str, *, retryable: bool) -> pb.EvalResult:
    """Return the result of a failure or a stop of KernelDyno. `cause` is machine-readable."""
    evidence = pb.InfrastructureEvidence(cause=cause, detail=detail, retryable=retryable)
    return pb.EvalResult(
        outcome=pb.EvalResult.INFRASTRUCTURE_ERROR,
        compiled=False,
        correct=False,
        speedup=0.0,
        message=detail,
        infrastructure_error=evidence,
    )


def cancelled() -> pb.EvalResult:
    """Return the result of an attempt that was cancelled on request."""
    return infrastructure_error("CANCELLED", "the attempt was cancelled", retryable=False)


def reference_error(kind: str, detail: str) -> pb.EvalResult:
    """Return the result of an attempt whose source ended the judge that parsed it. `kind`: "JudgeDied", "Timeout"."""
    evidence = pb.ExceptionEvidence(stage="reference", type=kind, message=detail)
    return pb.EvalResult(
        outcome=pb.EvalResult.REFERENCE_ERROR,
        compiled=False,
        correct=False,
        speedup=0.0,
        message=detail,
        reference_error=evidence,
    )
