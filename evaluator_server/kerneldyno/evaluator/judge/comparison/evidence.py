"""What comparing an answer has found."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.v1 import evaluation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first wrong output: the fields of IncorrectEvidence, but for the trial. `detail` may quote a candidate."""

    output: str
    kind: str
    detail: str
    mismatched_elements: int = 0
    total_elements: int = 0
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
    worst_index: tuple[int, ...] = ()
    stress: pb.StressKind.ValueType = pb.STRESS_KIND_UNSPECIFIED


@dataclass(slots=True)
class Comparison:
    """What was found. `mismatch` is None when all is right."""

    mismatch: Mismatch | None = None
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
