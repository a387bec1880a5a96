"""Results that the server writes itself, when no judge is left to do it: infrastructure failures and blamed references.

None of them says anything about the candidate. Everything else about a candidate comes from the judge.
"""

from __future__ import annotations

from kerneldyno.v1 import evaluation_pb2 as pb


def infrastructure_error(cause: str, detail: str, *, retryable: bool) -> pb.EvalResult:
    """KernelDyno failed, or was told to stop; `cause` is machine-readable."""
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
    """Someone asked for it."""
    return infrastructure_error("CANCELLED", "the attempt was cancelled", retryable=False)


def reference_error(kind: str, detail: str) -> pb.EvalResult:
    """The reference took the judge with it; `kind` is "JudgeDied" or "Timeout"."""
    evidence = pb.ExceptionEvidence(stage="reference", type=kind, message=detail)
    return pb.EvalResult(
        outcome=pb.EvalResult.REFERENCE_ERROR,
        compiled=False,
        correct=False,
        speedup=0.0,
        message=detail,
        reference_error=evidence,
    )
