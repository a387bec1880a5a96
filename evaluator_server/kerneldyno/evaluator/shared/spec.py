"""One evaluation as plain values: the effective EvalRequest, after the judge has read it (`judge/request.py`).

Each part goes only where it is needed: a `ProblemSpec`, and the `TimedForm` where a reference is timed, to processes
that run references; a `CandidateSpec` to the candidate's. Parts that identify work have a `key` of all their fields.
Runners import this module, so it must not load protobuf.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass, field

from .enums import (
    CodeListing,
    MemoryErrors,
    ModuleMode,
    OutputReuse,
    Precision,
    Preset,
    ProvenancePolicy,
    ReferenceBackend,
    Sanitize,
    StressKind,
)
from .wire import Frame

#: What a module mode does to a module. (For BOTH the judge makes two specs.)
_TRAINING = {ModuleMode.TRAIN: True, ModuleMode.EVAL: False}


@dataclass(frozen=True, slots=True)
class ProblemSpec:
    """What a process that runs the problem needs to know: the reference, its inputs, and how they are posed."""

    toolkit: str
    reference_code: str
    entry_point: str
    cases_code: str = ""
    #: Names, inputs (JSON) and expected values (JSON) of inline cases.
    cases: tuple[tuple[str, str, str], ...] = ()
    #: Names and values (JSON) of workloads that the request gives, and the number of the one to judge, which is the number
    #: of the case to time if there are cases.
    workloads: tuple[tuple[str, str], ...] = ()
    workload: int = 0
    #: The precision to which inputs and modules are cast (`casting`); UNSPECIFIED if they are not.
    precision: Precision = Precision.UNSPECIFIED
    #: Whether calls make a backward pass as well.
    backward: bool = False
    #: The mode in which modules are called; UNSPECIFIED if they stay as they are constructed.
    module_mode: ModuleMode = ModuleMode.UNSPECIFIED
    #: Whether constant parameters and buffers are replaced by secret values.
    secret_constants: bool = False

    @property
    def training(self) -> bool | None:
        """Return whether modules are put into training mode or (False) into eval mode; None if they stay as they are."""
        return _TRAINING.get(self.module_mode)

    def key(self) -> str:
        """Return the identity of the problem: problems with equal keys run the same program."""
        return _key(self)

    def to_plain(self) -> Frame:
        """Return the spec as numbers, strings, lists and dicts for `from_plain`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, plain: Frame) -> ProblemSpec:
        """Read the output of `to_plain`. Its tuples may have become lists on the way, and its enums numbers."""
        return cls(
            **{
                **plain,
                "cases": tuple((name, inputs, expected) for name, inputs, expected in plain["cases"]),
                "workloads": tuple((name, value) for name, value in plain["workloads"]),
                "precision": Precision(plain["precision"]),
                "module_mode": ModuleMode(plain["module_mode"]),
            }
        )


@dataclass(frozen=True, slots=True)
class TimedForm:
    """What a candidate is timed beside: a form of its reference, or a program in place of the reference."""

    backend: ReferenceBackend = ReferenceBackend.EAGER
    #: Whether calls are replayed as CUDA graphs, on both sides.
    cuda_graph: bool = False
    #: The source of a library baseline that is timed in place of the reference; "" for the reference itself.
    baseline_code: str = ""

    @property
    def is_compiled(self) -> bool:
        """Return True if torch.compile makes what is timed of the reference."""
        return self.backend >= ReferenceBackend.TORCH_COMPILE

    @property
    def has_other_kernels(self) -> bool:
        """Return True if what is timed launches other kernels than the reference in its problem's process does."""
        return self.is_compiled or bool(self.baseline_code)

    def key(self) -> str:
        """Return the identity of the form."""
        return _key(self)

    def to_plain(self) -> Frame:
        """Return the form as numbers and strings for `from_plain`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, plain: Frame) -> TimedForm:
        """Read the output of `to_plain`."""
        return cls(**{**plain, "backend": ReferenceBackend(plain["backend"])})


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
class CandidateSpec:
    """The code to judge, and what its process may use. It never reaches a process that runs a problem."""

    kernel_code: str
    backend: str
    limits: Limits
    #: Further files (path and text), and flags for those that are compiled.
    kernel_files: tuple[tuple[str, str], ...] = ()
    cuda_flags: tuple[str, ...] = ()
    cpp_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    #: Limit of the device memory of its process, in bytes. None: the judge derives it from the reference.
    memory: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the source, and then the texts of the further files."""
        return (self.kernel_code, *(text for _, text in self.kernel_files))


@dataclass(frozen=True, slots=True)
class ToleranceRule:
    """How outputs are compared; see the message Tolerance."""

    preset: Preset
    atol: float | None = None
    rtol: float | None = None
    #: Share of an output's elements that must be right, for the preset that asks for a share.
    share: float = 0.95


@dataclass(frozen=True, slots=True)
class Rules:
    """Which answers are right, and on which inputs. What the judge learns about a problem holds for equal rules."""

    tolerance: ToleranceRule
    #: Coarser arithmetic that is allowed; UNSPECIFIED for the reference's own.
    allowed_precision: Precision = Precision.UNSPECIFIED
    stress_inputs: bool = True
    #: Kinds of stress to use. Empty: all kinds.
    stress_kinds: tuple[StressKind, ...] = ()

    def key(self) -> str:
        """Return the identity of the rules."""
        return _key(self)


@dataclass(frozen=True, slots=True)
class ChecksSpec:
    """How a candidate is checked."""

    correct_trials: int
    rules: Rules
    #: What happens when a later call overwrites an output.
    output_reuse: OutputReuse = OutputReuse.LABEL
    provenance_policy: ProvenancePolicy = ProvenancePolicy.REJECT_DECOYS
    #: What a broken rule of memory means.
    memory_errors: MemoryErrors = MemoryErrors.REJECT
    #: Whether a repeated call must give the same bytes.
    require_deterministic: bool = False


@dataclass(frozen=True, slots=True)
class TimingSpec:
    """Whether and how a candidate is timed."""

    #: Whether it is timed at all.
    wanted: bool
    perf_trials: int
    warmup: int
    #: Timing stops when the interval of the speedup is this narrow, relative to the speedup.
    precision: float = 0.01
    form: TimedForm = field(default_factory=TimedForm)
    #: Further forms of the reference to time the candidate beside.
    baselines: tuple[ReferenceBackend, ...] = ()
    #: Names and sources of programs to time the candidate beside.
    library_baselines: tuple[tuple[str, str], ...] = ()
    #: Limit for all workloads together, in seconds; the rest is then checked and not timed.
    workloads_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class InspectionSpec:
    """What else is wanted to be known about a right candidate."""

    profile: bool = True
    #: Whether Nsight Compute shall read counters, and energy be measured.
    counters: bool = False
    #: Which right candidates run under compute-sanitizer, and which code of kernels comes back.
    sanitize: Sanitize = Sanitize.NONE
    code_listing: CodeListing = CodeListing.NONE


@dataclass(frozen=True, slots=True)
class EvalSpec:
    """One evaluation, with every default filled in."""

    problem: ProblemSpec
    candidate: CandidateSpec
    checks: ChecksSpec
    timing: TimingSpec
    inspection: InspectionSpec

    @property
    def examined_key(self) -> str:
        """Return the identity of a problem and its rules: what the judge learns about it is kept under this."""
        return f"{self.problem.key()}-{self.checks.rules.key()}"

    @property
    def timed_key(self) -> str:
        """Return the identity of what a candidate is timed beside."""
        return f"{self.problem.key()}-{self.timing.form.key()}"


@functools.lru_cache(maxsize=256)  # sources may be long, and keys are asked for often
def _key(part: ProblemSpec | TimedForm | Rules) -> str:
    """Hash the name of a part's class and all its fields. A field that is added later cannot be forgotten here."""
    whole = json.dumps([type(part).__name__, dataclasses.asdict(part)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()
