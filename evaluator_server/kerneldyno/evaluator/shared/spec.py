"""The request to a judge as plain values: the effective EvalRequest, after the service's edge has translated it."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock limits of the stages, in seconds."""

    load: float
    compile: float
    correctness: float
    timing: float


@dataclass(frozen=True, slots=True)
class ToleranceRule:
    """How outputs are compared; see the message Tolerance."""

    preset: str
    atol: float | None
    rtol: float | None


@dataclass(frozen=True, slots=True)
class EvalSpec:
    """One evaluation, with every default filled in."""

    reference_code: str
    kernel_code: str
    entry_point: str
    backend: str
    toolkit: str
    correct_trials: int
    perf_trials: int
    warmup: int
    #: Timing stops when the interval of the speedup is this narrow, relative to the speedup.
    timing_precision: float
    tolerance: ToleranceRule
    allowed_precision: str
    torch_compile: bool
    cuda_graph: bool
    limits: Limits
    run_performance: bool
    enable_profiling: bool
    stress_inputs: bool
    provenance_policy: str
    cases_code: str
    cases: tuple[tuple[str, str], ...]
    #: What happens when a later call overwrites an output: OUTPUT_REUSE_LABEL or OUTPUT_REUSE_REJECT.
    output_reuse: str = "OUTPUT_REUSE_LABEL"
    #: Kinds of stress to use, such as STRESS_KIND_SIGNS. Empty: all kinds.
    stress_kinds: tuple[str, ...] = ()
    #: Limit of the candidate process's device memory, in bytes. None: the judge derives it from the reference.
    candidate_memory: int | None = None

    @property
    def problem_key(self) -> str:
        """Return the identity of the reference side: evaluations with equal keys may share one built reference."""
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

    def to_plain(self) -> dict[str, Any]:
        """Return the spec without the candidate's code, as numbers, strings, lists and dicts for `from_plain`."""
        return dataclasses.asdict(dataclasses.replace(self, kernel_code=""))

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> EvalSpec:
        """Read the output of `to_plain`. Its tuples may have become lists on the way."""
        return cls(
            **{
                **plain,
                "tolerance": ToleranceRule(**plain["tolerance"]),
                "limits": Limits(**plain["limits"]),
                "stress_kinds": tuple(plain["stress_kinds"]),
                "cases": tuple((inputs, expected) for inputs, expected in plain["cases"]),
            }
        )

    @classmethod
    def from_json(cls, request: dict[str, Any]) -> EvalSpec:
        """Read the proto-JSON of an effective EvalRequest (original field names, defaults filled in)."""
        tolerance = request.get("tolerance", {})
        limits = request["timeouts"]
        return cls(
            reference_code=request.get("reference_code", ""),
            kernel_code=request["kernel_code"],
            entry_point=request["entry_point"],
            backend=request["backend"],
            toolkit=request["toolkit"],
            correct_trials=request["num_correct_trials"],
            perf_trials=request["num_perf_trials"],
            warmup=request.get("num_warmup", 0),
            timing_precision=request.get("timing_precision", 0.01),
            tolerance=ToleranceRule(
                tolerance.get("preset", "PRESET_CALIBRATED"), tolerance.get("atol"), tolerance.get("rtol")
            ),
            allowed_precision=request.get("allowed_precision", "PRECISION_UNSPECIFIED"),
            torch_compile=request.get("reference_backend") == "REFERENCE_BACKEND_TORCH_COMPILE",
            cuda_graph=request.get("launch_mode") == "LAUNCH_MODE_CUDA_GRAPH",
            limits=Limits(
                *(_seconds(limits[f"{stage}_timeout"]) for stage in ("load", "compile", "correctness", "timing"))
            ),
            run_performance=request.get("run_performance", True),
            enable_profiling=request.get("enable_profiling", False),
            stress_inputs=request.get("stress_inputs", False),
            provenance_policy=request.get("provenance_policy", "PROVENANCE_POLICY_REJECT_DECOYS"),
            cases_code=request.get("cases_code", ""),
            cases=tuple((case["inputs_json"], case["expected_json"]) for case in request.get("cases", ())),
            output_reuse=request.get("output_reuse", "OUTPUT_REUSE_LABEL"),
            stress_kinds=tuple(request.get("stress_kinds", ())),
            candidate_memory=_int64(request.get("candidate_device_memory_bytes")),
        )


def _int64(value: str | int | None) -> int | None:
    """Read a 64-bit integer, which proto-JSON writes as a string."""
    return None if value is None else int(value)


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))
