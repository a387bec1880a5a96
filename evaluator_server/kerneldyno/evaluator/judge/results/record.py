"""What the judge has found out about one candidate: trials passed, worst errors, findings.

The stages write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.enums import Precision
from ...shared.tree import TensorSpec
from ..comparison.evidence import Comparison
from . import verdict


class Finished(Exception):  # noqa: N818
    """Carries a verdict out of the stages."""

    def __init__(self, result: pb.EvalResult) -> None:
        super().__init__(pb.EvalResult.Outcome.Name(result.outcome))
        self.result = result


@dataclass(slots=True)
class Record:
    """The evidence so far."""

    findings: list[pb.Finding] = field(default_factory=list)
    trials: int = 0
    passed: int = 0
    stress_trials: int = 0
    timed_checks: int = 0
    parameters_perturbed: int = 0
    precision: Precision = Precision.UNSPECIFIED
    #: Launches of the candidate's own kernels that its harness has counted; None if it cannot count them.
    launches: int | None = None
    #: The memory layout of the candidate's outputs, as its harness says.
    layouts: Sequence[TensorSpec] = ()
    worst: Comparison = field(default_factory=Comparison)
    #: What the candidate wrote outside its tensors, and in which trial that was seen first.
    outside: tuple[int, str] | None = None
    #: True if a call that repeated an earlier one gave the same bytes; None if there was no such call.
    deterministic: bool | None = None
    #: True if only a share of an output's elements must be right.
    shares: bool = False

    def start_again(self, findings: Sequence[pb.Finding]) -> None:
        """Forget the trials and what they showed. `findings` are the earlier ones, which are kept."""
        self.findings = list(findings)
        self.trials = self.passed = self.stress_trials = 0
        self.precision = Precision.UNSPECIFIED
        self.worst = Comparison()
        self.outside = None

    def has(self, identifier: str) -> bool:
        """Return True if there is such a finding."""
        return any(found.id == identifier for found in self.findings)

    def find(self, identifier: str, severity: pb.Finding.Severity.ValueType, evidence: str) -> None:
        """Add a finding."""
        self.findings.append(verdict.finding(identifier, severity, evidence))

    def reject(self, identifier: str, evidence: str) -> Finished:
        """Add a rejecting finding, and return the exception for the caller to raise."""
        self.find(identifier, pb.Finding.SEVERITY_REJECT, evidence)
        return Finished(verdict.rejected(self.findings, self.report(), compiled=True))

    def note(self, comparison: Comparison) -> None:
        """Remember the largest errors."""
        self.worst.max_abs_error = max(self.worst.max_abs_error, comparison.max_abs_error)
        self.worst.max_error_ratio = max(self.worst.max_error_ratio, comparison.max_error_ratio)
        self.worst.matched_share = min(self.worst.matched_share, comparison.matched_share)

    def note_share(self) -> None:
        """Add a finding if outputs were right only because a share of their elements may be wrong."""
        if self.shares and self.worst.matched_share < 1:
            evidence = (
                f"{1 - self.worst.matched_share:.3%} of an output's elements are out of tolerance, which was allowed"
            )
            self.find("D08", pb.Finding.SEVERITY_INFO, evidence)

    def launched(self, count: int | None) -> None:
        """Add to the launches."""
        if count is not None:
            self.launches = (self.launches or 0) + count

    def report(self) -> pb.CorrectnessReport:
        """Return the summary of all comparisons so far."""
        return pb.CorrectnessReport(
            passed_trials=self.passed,
            total_trials=self.trials,
            max_abs_error=self.worst.max_abs_error,
            max_error_ratio=self.worst.max_error_ratio,
            timed_outputs_checked=self.timed_checks,
            stress_trials=self.stress_trials,
            observed_precision=pb.Precision.ValueType(self.precision),
            parameters_perturbed=self.parameters_perturbed,
            matched_share=self.worst.matched_share if self.shares else None,
            deterministic=self.deterministic,
        )
