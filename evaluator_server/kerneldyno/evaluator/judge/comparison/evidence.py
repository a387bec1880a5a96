"""The result of comparing an answer with the right one."""

from __future__ import annotations

from dataclasses import dataclass

from ...shared.enums import StressKind


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first wrong output: the fields of IncorrectEvidence without the trial. `detail` may quote the candidate."""

    output: str
    kind: str
    detail: str
    mismatched_elements: int = 0
    total_elements: int = 0
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
    worst_index: tuple[int, ...] = ()
    stress: StressKind = StressKind.UNSPECIFIED


@dataclass(slots=True)
class Comparison:
    """The largest errors, and the first wrong output; `mismatch` is None if all outputs are right."""

    mismatch: Mismatch | None = None
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
    #: The smallest share of an output's elements that are within tolerance.
    matched_share: float = 1.0
