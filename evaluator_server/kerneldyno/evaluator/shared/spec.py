"""The request to a judge as plain values: the effective EvalRequest, after the service's edge has translated it.

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


#: REFERENCE_BACKEND_TORCH_COMPILE; later numbers are other modes of torch.compile.
_COMPILED = 2
#: What MODULE_MODE_TRAIN and MODULE_MODE_EVAL do to a module. (For MODULE_MODE_BOTH the judge makes two specs.)
_TRAINING = {1: True, 2: False}


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock limits of the stages, in seconds."""

    load: float
    compile: float
    correctness: float
    timing: float
    #: Of the builders, before there is a device.
    build: float = 300.0


@dataclass(frozen=True, slots=True)
class ToleranceRule:
    """How outputs are compared; see the message Tolerance."""

    preset: pb.Tolerance.Preset.ValueType
    atol: float | None
    rtol: float | None
    #: Share of an output's elements that must be right, for the preset that asks for a share.
    share: float = 0.95


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
    allowed_precision: pb.Precision.ValueType
    #: How the reference is executed for timing.
    reference_backend: pb.ReferenceBackend.ValueType
    cuda_graph: bool
    limits: Limits
    run_performance: bool
    enable_profiling: bool
    stress_inputs: bool
    provenance_policy: pb.ProvenancePolicy.ValueType
    cases_code: str
    #: Names, inputs (JSON) and expected values (JSON) of inline cases.
    cases: tuple[tuple[str, str, str], ...]
    #: What happens when a later call overwrites an output: OUTPUT_REUSE_LABEL or OUTPUT_REUSE_REJECT.
    output_reuse: pb.OutputReuse.ValueType
    #: The precision to which inputs and modules are cast (`casting`); UNSPECIFIED if they are not.
    precision: pb.Precision.ValueType
    #: Whether calls make a backward pass as well.
    backward: bool
    #: The mode in which modules are called; UNSPECIFIED if they stay as they are constructed.
    module_mode: pb.ModuleMode.ValueType
    #: Names and values (JSON) of workloads that the request gives; the number of the one to judge, which is the number of
    #: the case to time if there are cases; and the time limit for all, in seconds.
    workloads: tuple[tuple[str, str], ...]
    workload: int = 0
    workloads_seconds: float | None = None
    #: Further forms of the reference to time the candidate beside.
    baselines: tuple[pb.ReferenceBackend.ValueType, ...] = ()
    #: Names and sources of programs to time the candidate beside.
    library_baselines: tuple[tuple[str, str], ...] = ()
    #: The source of one of them, if it is timed in place of the reference; "" for the reference itself.
    baseline_code: str = ""
    #: Kinds of stress to use. Empty: all kinds.
    stress_kinds: tuple[pb.StressKind.ValueType, ...] = ()
    #: Limit of the candidate process's device memory, in bytes. None: the judge derives it from the reference.
    candidate_memory: int | None = None
    #: The candidate's further files (path and text), and flags for those that are compiled.
    kernel_files: tuple[tuple[str, str], ...] = ()
    cuda_flags: tuple[str, ...] = ()
    cpp_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    #: Whether Nsight Compute shall read counters, and energy be measured.
    counters: bool = False
    #: Which right candidates run under compute-sanitizer (SANITIZE_NONE, _WINNERS, _ALL), what a broken rule of memory
    #: means (MEMORY_ERRORS_LABEL, _REJECT), and which code of kernels comes back (CODE_LISTING_NONE, _PTX, _SASS, _ALL).
    sanitize: int = 1
    memory_errors: int = 2
    code_listing: int = 1

    @property
    def training(self) -> bool | None:
        """Return whether modules are put into training mode or (False) into eval mode; None if they stay as they are."""
        return _TRAINING.get(self.module_mode)

    @property
    def torch_compile(self) -> bool:
        """Return True if torch.compile makes what is timed of the reference."""
        return self.reference_backend >= _COMPILED

    @property
    def problem_key(self) -> str:
        """Return the identity of the reference side: evaluations with equal keys may share one built reference."""
        digest = hashlib.sha256()
        switches = (
            f"{self.reference_backend} {self.cuda_graph} {self.stress_inputs} {self.stress_kinds} {self.tolerance}"
            f" {self.allowed_precision} {self.precision} {self.backward} {self.module_mode} {self.workload}"
        )
        parts = (self.toolkit, self.entry_point, switches, self.reference_code, self.cases_code, self.baseline_code)
        for part in (*parts, *(text for case in (*self.cases, *self.workloads) for text in case)):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.hexdigest()

    def to_plain(self) -> Frame:
        """Return the spec as numbers, strings, lists and dicts for `from_plain`.

        The candidate's code and the library baselines are left out.
        """
        return dataclasses.asdict(dataclasses.replace(self, kernel_code="", kernel_files=(), library_baselines=()))

    @classmethod
    def from_plain(cls, plain: Frame) -> EvalSpec:
        """Read the output of `to_plain`. Its tuples may have become lists on the way."""
        return cls(
            **{
                **plain,
                "tolerance": ToleranceRule(**plain["tolerance"]),
                "limits": Limits(**plain["limits"]),
                "stress_kinds": tuple(plain["stress_kinds"]),
                "baselines": tuple(plain["baselines"]),
                "cases": tuple((name, inputs, expected) for name, inputs, expected in plain["cases"]),
                "workloads": tuple((name, value) for name, value in plain["workloads"]),
                "kernel_files": (),
                "library_baselines": (),
                "cuda_flags": tuple(plain["cuda_flags"]),
                "cpp_flags": tuple(plain["cpp_flags"]),
                "libraries": tuple(plain["libraries"]),
            }
        )
