"""What is asked of a judge, as plain values: the effective EvalRequest after it has crossed the service's edge.

Enums are the numbers of the contract. The judge makes an EvalSpec of the message (`judge/request.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .wire import Frame

if TYPE_CHECKING:  # runners of references import this module, and runners must not load protobuf
    from kerneldyno.v1 import evaluation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock limits of the stages, in seconds."""

    load: float
    compile: float
    correctness: float
    timing: float


@dataclass(frozen=True, slots=True)
class ToleranceRule:
    """How outputs are compared; see the Tolerance message."""

    preset: pb.Tolerance.Preset.ValueType
    atol: float | None
    rtol: float | None


@dataclass(frozen=True, slots=True)
class EvalSpec:
    """One evaluation, every default filled in."""

    reference_code: str
    kernel_code: str
    entry_point: str
    backend: str
    toolkit: str
    correct_trials: int
    perf_trials: int
    warmup: int
    #: Relative width of the speedup's interval at which timing stops.
    timing_precision: float
    tolerance: ToleranceRule
    allowed_precision: pb.Precision.ValueType
    torch_compile: bool
    cuda_graph: bool
    limits: Limits
    run_performance: bool
    enable_profiling: bool
    stress_inputs: bool
    provenance_policy: pb.ProvenancePolicy.ValueType
    cases_code: str
    cases: tuple[tuple[str, str], ...]
    #: Whether a later call may overwrite an output: OUTPUT_REUSE_LABEL or OUTPUT_REUSE_REJECT.
    output_reuse: pb.OutputReuse.ValueType
    #: Kinds of stress that are used; empty: all.
    stress_kinds: tuple[pb.StressKind.ValueType, ...] = ()
    #: Most device memory that the candidate's process may allocate, in bytes. None: the judge derives it from the reference.
    candidate_memory: int | None = None

    @property
    def problem_key(self) -> str:
        """Identity of the reference side: equal keys may share one built reference."""
        digest = hashlib.sha256()
        switches = (
            f"{self.torch_compile} {self.cuda_graph} {self.stress_inputs} {self.stress_kinds} {self.tolerance}"
            f" {self.allowed_precision}"
        )
        parts = (self.toolkit, self.entry_point, switches, self.reference_code, self.cases_code)
        for part in (*parts, *(text for case in self.cases for text in case)):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.hexdigest()

    def to_plain(self) -> Frame:
        """Return what `from_plain` reads, without the candidate: numbers, strings, lists and dicts."""
        return dataclasses.asdict(dataclasses.replace(self, kernel_code=""))

    @classmethod
    def from_plain(cls, plain: Frame) -> EvalSpec:
        """The inverse of `to_plain`, whose tuples may have become lists on the way."""
        return cls(
            **{
                **plain,
                "tolerance": ToleranceRule(**plain["tolerance"]),
                "limits": Limits(**plain["limits"]),
                "stress_kinds": tuple(plain["stress_kinds"]),
                "cases": tuple((inputs, expected) for inputs, expected in plain["cases"]),
            }
        )
