"""Limits of a request, checked field by field and never clamped, and the defaults of fields that it leaves out.

The scheduler checks every request here before it accepts it. An evaluator checks those that it receives directly, and
the client may check before it sends. Pure: it looks at the message alone. The evaluator checks whether the source
parses and whether it has the entry point.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration

from kerneldyno.rpc.candidate_files import file_faults, flag_faults, has_native, normalize
from kerneldyno.rpc.library_baselines import baseline_faults, normalize_baselines
from kerneldyno.rpc.profiles import needs_gpu, normalize_profiles, profile_faults
from kerneldyno.rpc.source import BYTE_ORDER_MARK, without_mark
from kerneldyno.rpc.workloads import case_faults, workload_faults
from kerneldyno.v1 import evaluation_pb2 as pb

#: First word of the description of a field that must not be empty.
MISSING = "missing"

MAX_SOURCE_BYTES = 1024 * 1024
MAX_ID_CHARS = 200
MAX_CORRECT_TRIALS = 20
MAX_PERF_TRIALS = 1000
MAX_WARMUP = 100
MIN_STAGE_SECONDS = 0.1
MAX_STAGE_SECONDS = 3600.0
MAX_LABELS = 16
#: Longest label in characters. The longest name of a KernelBench problem, with its level, has 103.
MAX_LABEL_CHARS = 150
MAX_SALT_CHARS = 100
MIN_TIMING_PRECISION = 0.001
MAX_TIMING_PRECISION = 1.0
#: Smallest limit in bytes; less would not hold the workspace of a CUDA library.
MIN_CANDIDATE_MEMORY_BYTES = 64 * 1024 * 1024
MIN_TOTAL_SECONDS = 1.0
MAX_TOTAL_SECONDS = 7 * 86_400.0
MAX_MIN_DEVICES = 1024
#: Fields that are Python source.
_SOURCES = ("reference_code", "kernel_code", "cases_code")
#: Most violations reported for one request, as the contract says.
MAX_VIOLATIONS = 20

DEFAULT_ENTRY_POINT = "Model"
DEFAULT_BACKEND = "triton"
DEFAULT_TOOLKIT = "kernelbench"
DEFAULT_CORRECT_TRIALS = 5
DEFAULT_PERF_TRIALS = 100
DEFAULT_WARMUP = 3
DEFAULT_TIMING_PRECISION = 0.01
DEFAULT_STAGE_SECONDS = 60
#: Default limit in seconds; a kernel that tries many configurations compiles each of them.
DEFAULT_COMPILE_SECONDS = 120
#: Default limit in seconds for stages that may run nvcc, which compiles when a source is imported or first called.
DEFAULT_NVCC_SECONDS = 300
#: Default limit in seconds for building native code. Digests leave it out (kerneldyno.rpc.identity).
DEFAULT_BUILD_SECONDS = 300

STAGE_TIMEOUT_FIELDS = ("load_timeout", "compile_timeout", "correctness_timeout", "timing_timeout", "build_timeout")

#: Fields that every effective request has. A newer field may be absent: its readers know its default.
_FILLED_TEXTS: Final = ("entry_point", "backend", "toolkit")
_FILLED_NUMBERS: Final = ("num_correct_trials", "num_perf_trials")
_FILLED_TIMEOUTS: Final = ("load_timeout", "compile_timeout", "correctness_timeout", "timing_timeout")

#: Share of elements that PRESET_MATCHED_SHARE asks for if the request does not say.
DEFAULT_MATCHED_SHARE = 0.95
#: Presets for which a request may give tolerances.
_PRESETS_WITH_NUMBERS = (
    pb.Tolerance.PRESET_UNSPECIFIED,
    pb.Tolerance.PRESET_ALLCLOSE,
    pb.Tolerance.PRESET_MATCHED_SHARE,
)

#: Backends that only one kind of device can run.
_NEEDS_KIND = {"cuda": "cuda"}

_PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: Types of all fields of a request that hold an enum, or several.
_ENUM_FIELDS: dict[str, Any] = {
    field.name: getattr(pb, field.enum_type.name) for field in pb.EvalRequest.DESCRIPTOR.fields if field.enum_type
}
_ENUMS: dict[str, Any] = {**_ENUM_FIELDS, "tolerance.preset": pb.Tolerance.Preset}
#: Computed once: the wrappers above make a new list for each query.
_ENUM_VALUES = {field: frozenset(enum.values()) for field, enum in _ENUMS.items()}
#: A text with fewer characters cannot exceed MAX_SOURCE_BYTES bytes in UTF-8.
_SURELY_SHORT_CHARS = MAX_SOURCE_BYTES // 4


def top_field(path: str) -> str:
    """Return the field of EvalRequest that a violation's path begins with: "kernel_files" for "kernel_files[0].path"."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Violation:
    """A bad field: its path in EvalRequest, what is wrong, and what would be right."""

    field: str
    description: str


def validate(
    request: pb.EvalRequest,
    *,
    backends: Collection[str] | None = None,
    toolkits: Collection[str] | None = None,
    profiling: bool = False,
    id_required: bool = True,
) -> list[Violation]:
    """Return what is wrong with `request`, at most `MAX_VIOLATIONS`; an empty list means that it is valid.

    Args:
        request: the request to check.
        backends: names of the backends that are served; None to skip this check.
        toolkits: names of the toolkits that are served; None to skip this check.
        profiling: whether any device can profile, which GPUs can.
        id_required: whether the request must have an id.
    """
    found: list[Violation] = []
    for violation in _violations(request, backends, toolkits, profiling, id_required):
        found.append(violation)
        if len(found) == MAX_VIOLATIONS:
            break
    return found


def effective(request: pb.EvalRequest) -> pb.EvalRequest:
    """Return a copy of a valid `request` with every default filled in, so that later stages need not know the defaults.

    Byte order marks at the start of its sources are removed, and its files are sorted by path.
    """
    full = pb.EvalRequest()
    full.CopyFrom(request)
    for name in _SOURCES:
        if (text := getattr(full, name)).startswith(BYTE_ORDER_MARK):
            setattr(full, name, without_mark(text))
    normalize(full)
    normalize_baselines(full)
    full.entry_point = full.entry_point or DEFAULT_ENTRY_POINT
    full.backend = full.backend or DEFAULT_BACKEND
    full.toolkit = full.toolkit or DEFAULT_TOOLKIT
    if not full.HasField("num_correct_trials"):
        full.num_correct_trials = DEFAULT_CORRECT_TRIALS
    if not full.HasField("num_perf_trials"):
        full.num_perf_trials = DEFAULT_PERF_TRIALS
    if not full.HasField("num_warmup"):
        full.num_warmup = DEFAULT_WARMUP
    if full.tolerance.preset == pb.Tolerance.PRESET_UNSPECIFIED:
        full.tolerance.preset = _preset(full.tolerance)
    if full.tolerance.HasField("matched_share") and full.tolerance.matched_share == DEFAULT_MATCHED_SHARE:
        full.tolerance.ClearField("matched_share")  # readers of the field know its default
    if full.precision == pb.PRECISION_FP8:
        full.allowed_precision = full.allowed_precision or pb.PRECISION_FP8
    full.reference_backend = full.reference_backend or pb.REFERENCE_BACKEND_EAGER
    if full.launch_mode == pb.LAUNCH_MODE_EAGER:
        full.ClearField("launch_mode")  # newer than the form of identities: work without it keeps its digest
    if full.HasField("timing_precision") and full.timing_precision == DEFAULT_TIMING_PRECISION:
        full.ClearField("timing_precision")  # for the same reason; readers of the field know its default
    if full.output_reuse == pb.OUTPUT_REUSE_LABEL:
        full.ClearField("output_reuse")
    if not full.HasField("stress_inputs"):
        full.stress_inputs = full.tolerance.preset == pb.Tolerance.PRESET_CALIBRATED or bool(full.stress_kinds)
    kinds = sorted(full.stress_kinds)
    del full.stress_kinds[:]
    if len(kinds) < len(pb.StressKind.values()) - 1:  # the full set is the default
        full.stress_kinds.extend(kinds)
    full.speedup_kind = full.speedup_kind or pb.SPEEDUP_KIND_DEVICE
    full.priority = full.priority or pb.PRIORITY_NORMAL
    for name in STAGE_TIMEOUT_FIELDS:
        if not full.timeouts.HasField(name):  # type: ignore[arg-type]
            getattr(full.timeouts, name).seconds = _stage_seconds(name, full.backend)
    if not full.HasField("run_performance"):
        full.run_performance = True
    full.provenance_policy = full.provenance_policy or pb.PROVENANCE_POLICY_REJECT_DECOYS
    normalize_profiles(full)
    return full


def missing_fields(full: pb.EvalRequest) -> list[str]:
    """Return the fields that `effective` always fills in and `full` lacks. Another version may omit some."""
    return [
        *(name for name in _FILLED_TEXTS if not getattr(full, name)),
        *(name for name in _FILLED_NUMBERS if not full.HasField(name)),
        *(f"timeouts.{name}" for name in _FILLED_TIMEOUTS if not full.timeouts.HasField(name)),
    ]


def _preset(tolerance: pb.Tolerance) -> pb.Tolerance.Preset.ValueType:
    """Return the preset that the given numbers mean."""
    if tolerance.HasField("matched_share"):
        return pb.Tolerance.PRESET_MATCHED_SHARE
    given = tolerance.HasField("atol") or tolerance.HasField("rtol")
    return pb.Tolerance.PRESET_ALLCLOSE if given else pb.Tolerance.PRESET_CALIBRATED


def _stage_seconds(name: str, backend: str) -> int:
    """Return the default limit of a stage in seconds."""
    if name == "build_timeout":
        return DEFAULT_BUILD_SECONDS
    if backend == "cuda" and name in ("load_timeout", "compile_timeout"):
        return DEFAULT_NVCC_SECONDS
    return DEFAULT_COMPILE_SECONDS if name == "compile_timeout" else DEFAULT_STAGE_SECONDS


def device_kind(request: pb.EvalRequest) -> str:
    """Return the kind of device that `request` needs: the one it names, else the one its fields need; "" for any."""
    return request.device.kind or _NEEDS_KIND.get(request.backend, "cuda" if needs_gpu(request) else "")


def _violations(
    request: pb.EvalRequest,
    backends: Collection[str] | None,
    toolkits: Collection[str] | None,
    profiling: bool,
    id_required: bool,
) -> Iterator[Violation]:
    yield from _id(request.id, id_required)
    yield from _sources(request)
    if request.kernel_files:
        yield from (Violation(*fault) for fault in file_faults(request.kernel_files))
    if request.HasField("build_flags"):
        yield from (Violation(*fault) for fault in flag_faults(request.build_flags))
    if request.entry_point and (not request.entry_point.isidentifier() or keyword.iskeyword(request.entry_point)):
        yield Violation(
            "entry_point", f"{_show(request.entry_point)} is not a Python identifier; name a class, for example Model"
        )
    yield from _plugin("backend", request.backend, DEFAULT_BACKEND, backends)
    yield from _plugin("toolkit", request.toolkit, DEFAULT_TOOLKIT, toolkits)
    yield from _count(request, "num_correct_trials", 1, MAX_CORRECT_TRIALS)
    yield from _count(request, "num_perf_trials", 1, MAX_PERF_TRIALS)
    yield from _count(request, "num_warmup", 0, MAX_WARMUP)
    if request.HasField("tolerance"):
        yield from _tolerance(request.tolerance)
    if request.precision:
        yield from _precision(request)
    if request.backward and request.toolkit == "kernel_simple":
        yield Violation("backward", "must be false with the kernel_simple toolkit, whose cases give outputs only")
    if request.module_mode and request.toolkit == "kernel_simple":
        yield Violation("module_mode", "must be absent with the kernel_simple toolkit, which has no reference module")
    yield from _baselines(request)
    yield from (Violation(*fault) for fault in baseline_faults(request))
    if request.HasField("timing_precision"):
        yield from _timing_precision(request.timing_precision)
    if request.HasField("candidate_device_memory_bytes"):
        yield from _candidate_memory(request.candidate_device_memory_bytes)
    yield from _enums(request)
    yield from _stress_kinds(request.stress_kinds)
    if request.HasField("timeouts"):
        yield from _timeouts(request.timeouts)
    if request.HasField("total_timeout"):
        yield from _duration("total_timeout", request.total_timeout, MIN_TOTAL_SECONDS, MAX_TOTAL_SECONDS)
    if request.HasField("client_grace"):
        yield from _duration("client_grace", request.client_grace, MIN_TOTAL_SECONDS, MAX_TOTAL_SECONDS)
    if request.HasField("device"):
        yield from _device(request.device)
        needed = _NEEDS_KIND.get(request.backend, "")
        if needed and request.device.kind not in ("", needed):
            text = f"the backend {request.backend} runs on {needed} devices only; leave the field out"
            yield Violation("device.kind", text)
    yield from (Violation(*fault) for fault in profile_faults(request, profiling))
    yield from (Violation(*fault) for fault in case_faults(request, request.toolkit or DEFAULT_TOOLKIT))
    if request.workloads:
        yield from (Violation(*fault) for fault in workload_faults(request))
    if request.HasField("workloads_time"):
        yield from _duration("workloads_time", request.workloads_time, MIN_TOTAL_SECONDS, MAX_TOTAL_SECONDS)
    if request.salt:
        yield from _salt(request.salt)
    if request.labels:
        yield from _labels("labels", request.labels)


def _id(value: str, required: bool) -> Iterator[Violation]:
    if not value:
        if required:
            yield Violation("id", f"missing; give 1 to {MAX_ID_CHARS} printable characters")
    elif len(value) > MAX_ID_CHARS:
        yield Violation("id", f"has {len(value)} characters; at most {MAX_ID_CHARS} are allowed")
    elif not value.isprintable():
        yield Violation("id", f"{_show(value)} has characters that cannot be printed")


def _sources(request: pb.EvalRequest) -> Iterator[Violation]:
    toolkit = request.toolkit or DEFAULT_TOOLKIT
    # Each access to a text field copies it.
    reference, candidate, cases = request.reference_code, request.kernel_code, request.cases_code
    if toolkit == "kernelbench" and _is_blank(reference):
        yield Violation("reference_code", f"{MISSING}; the kernelbench toolkit needs the source of the reference")
    if toolkit == "kernel_simple" and reference:
        yield Violation("reference_code", "must be empty with the kernel_simple toolkit; cases say what is expected")
    if _is_blank(candidate) and not has_native(request.kernel_files):
        wanted = "the Python source of the candidate, or native sources (.cu, .cpp) in kernel_files"
        yield Violation("kernel_code", f"{MISSING}; give {wanted}")
    for field, text in zip(_SOURCES, (reference, candidate, cases), strict=True):
        if len(text) > _SURELY_SHORT_CHARS and (size := len(text.encode())) > MAX_SOURCE_BYTES:
            yield Violation(field, f"is {size} bytes long; at most {MAX_SOURCE_BYTES} bytes (1 MiB) are allowed")
        if "\0" in text:
            yield Violation(field, f"contains a NUL byte at position {text.index(chr(0))}; Python source cannot")


def _plugin(field: str, value: str, default: str, known: Collection[str] | None) -> Iterator[Violation]:
    name = value or default
    if not _PLUGIN_NAME.fullmatch(name):
        yield Violation(field, f"{_show(value)} is not a name; use letters, digits, '.', '_' and '-', at most 100")
    elif known is not None and name not in known:
        yield Violation(field, f"{_show(name)} is not known here; known: {', '.join(sorted(known)) or 'none'}")


def _count(request: pb.EvalRequest, field: str, low: int, high: int) -> Iterator[Violation]:
    if request.HasField(field) and not low <= getattr(request, field) <= high:  # type: ignore[arg-type]
        yield Violation(field, f"is {getattr(request, field)}; allowed are {low} to {high}")


def _precision(request: pb.EvalRequest) -> Iterator[Violation]:
    if request.precision == pb.PRECISION_TF32:
        text = "TF32 is arithmetic, and no type of tensors; use FP32 here and TF32 as allowed_precision"
        yield Violation("precision", text)
    if request.toolkit == "kernel_simple":
        yield Violation(
            "precision", "must be absent with the kernel_simple toolkit; cases give the type of each tensor"
        )


def _baselines(request: pb.EvalRequest) -> Iterator[Violation]:
    if pb.REFERENCE_BACKEND_UNSPECIFIED in request.baselines:
        yield Violation("baselines", "REFERENCE_BACKEND_UNSPECIFIED is no baseline; name one, or leave the field empty")
    if len(set(request.baselines)) < len(request.baselines):
        yield Violation("baselines", "names one twice; name each once")
    if (request.reference_backend or pb.REFERENCE_BACKEND_EAGER) in request.baselines:
        yield Violation("baselines", "names the reference_backend, beside which the candidate is timed in any case")


def _timing_precision(value: float) -> Iterator[Violation]:
    if not MIN_TIMING_PRECISION <= value <= MAX_TIMING_PRECISION:  # NaN is neither
        allowed = f"{MIN_TIMING_PRECISION:g} to {MAX_TIMING_PRECISION:g}"
        yield Violation("timing_precision", f"is {value:g}; allowed are {allowed} (0.01: one percent of the speedup)")


def _candidate_memory(value: int) -> Iterator[Violation]:
    if value < MIN_CANDIDATE_MEMORY_BYTES:
        allowed = f"at least {MIN_CANDIDATE_MEMORY_BYTES} bytes (64 MiB) are allowed"
        advice = "leave it out to have it derived from the reference"
        yield Violation("candidate_device_memory_bytes", f"is {value}; {allowed}; {advice}")


def _tolerance(tolerance: pb.Tolerance) -> Iterator[Violation]:
    yield from _enum("tolerance.preset", tolerance.preset)
    for name in ("atol", "rtol"):
        if not tolerance.HasField(name):
            continue
        value: float = getattr(tolerance, name)
        if not math.isfinite(value) or value < 0:
            yield Violation(f"tolerance.{name}", f"is {value}; it must be finite and not negative")
        if tolerance.preset not in _PRESETS_WITH_NUMBERS:
            text = "is for PRESET_ALLCLOSE and PRESET_MATCHED_SHARE only; leave it out or change the preset"
            yield Violation(f"tolerance.{name}", text)
    if tolerance.HasField("matched_share"):
        if not 0 < tolerance.matched_share <= 1:  # NaN is not
            yield Violation("tolerance.matched_share", f"is {tolerance.matched_share:g}; allowed are above 0 to 1")
        if tolerance.preset not in (pb.Tolerance.PRESET_UNSPECIFIED, pb.Tolerance.PRESET_MATCHED_SHARE):
            text = "is for PRESET_MATCHED_SHARE only; leave it out or change the preset"
            yield Violation("tolerance.matched_share", text)


def _enums(request: pb.EvalRequest) -> Iterator[Violation]:
    for field in _ENUM_FIELDS:
        given = getattr(request, field)
        for value in (given,) if isinstance(given, int) else given:
            yield from _enum(field, value)


def _enum(field: str, value: int) -> Iterator[Violation]:
    if value not in _ENUM_VALUES[field]:
        known = ", ".join(f"{number} ({name})" for name, number in _ENUMS[field].items())
        yield Violation(field, f"{value} is not a known value; choose one of {known}")


def _stress_kinds(kinds: Collection[int]) -> Iterator[Violation]:
    if pb.STRESS_KIND_UNSPECIFIED in kinds:
        yield Violation("stress_kinds", "STRESS_KIND_UNSPECIFIED is not a kind; leave the field empty for all kinds")
    if len(set(kinds)) < len(kinds):
        yield Violation("stress_kinds", "names a kind twice; name each once")


def _timeouts(timeouts: pb.StageTimeouts) -> Iterator[Violation]:
    for name in STAGE_TIMEOUT_FIELDS:
        if timeouts.HasField(name):  # type: ignore[arg-type]
            yield from _duration(f"timeouts.{name}", getattr(timeouts, name), MIN_STAGE_SECONDS, MAX_STAGE_SECONDS)


def _duration(field: str, value: Duration, low: float, high: float) -> Iterator[Violation]:
    seconds = value.seconds + value.nanos / 1e9
    if abs(value.nanos) > 999_999_999 or not low <= seconds <= high:
        yield Violation(field, f"is {seconds:g} s; allowed are {low:g} s to {high:g} s")


def _device(device: pb.DeviceSelector) -> Iterator[Violation]:
    if device.kind not in ("", "cuda", "cpu"):
        yield Violation("device.kind", f"{_show(device.kind)} is not a kind of device; use cuda, cpu, or none")
    if device.min_memory_bytes < 0:
        yield Violation("device.min_memory_bytes", f"is {device.min_memory_bytes}; it must not be negative")
    if not 0 <= device.min_devices <= MAX_MIN_DEVICES:
        yield Violation("device.min_devices", f"is {device.min_devices}; allowed are 0 to {MAX_MIN_DEVICES}")
    yield from _labels("device.node_labels", device.node_labels)


def _salt(value: str) -> Iterator[Violation]:
    if len(value) > MAX_SALT_CHARS:
        yield Violation("salt", f"has {len(value)} characters; at most {MAX_SALT_CHARS} are allowed")
    elif not value.isprintable():
        yield Violation("salt", f"{_show(value)} has characters that cannot be printed")


def _labels(field: str, labels: Mapping[str, str]) -> Iterator[Violation]:
    if len(labels) > MAX_LABELS:
        yield Violation(field, f"has {len(labels)} labels; at most {MAX_LABELS} are allowed")
    for key, value in sorted(labels.items()):
        if max(len(key), len(value)) > MAX_LABEL_CHARS:
            yield Violation(
                f"{field}[{_show(key)}]", f"key or value is longer than {MAX_LABEL_CHARS} characters; shorten it"
            )


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _show(value: str) -> str:
    """Quote `value` for a message: printable, and cut when long."""
    return repr(value if len(value) <= 60 else value[:57] + "...")
