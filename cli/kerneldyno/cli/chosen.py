"""Options that decide how candidates are judged, the same for `evaluate`, `batch` and `suite`: one row per field.

A command has a parameter `chosen: Chosen`; `with_chosen` gives the command the options instead, and makes the value
from them. Where the parameter's default has values, these hold always, and the command has no options for them.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from kerneldyno.cli.common import UsageError, read_source
from kerneldyno.v1.evaluation_pb2 import ReferenceBackend, StressKind

#: Values that --candidate-memory accepts.
_SIZE = re.compile(r"(?P<number>[0-9]{1,19}(\.[0-9]{1,9})?) ?(?P<unit>MiB|GiB|)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "mib": 1 << 20, "gib": 1 << 30}
_STRESS_KINDS = tuple(name.removeprefix("STRESS_KIND_").lower() for name, number in StressKind.items() if number)

_BACKENDS = tuple(
    name.removeprefix("REFERENCE_BACKEND_").lower().replace("_", "-")
    for name, number in ReferenceBackend.items()
    if number
)


def _one_of(*names: str) -> Callable[[str, str], str]:
    def read(option: str, text: str) -> str:
        name = text.strip().lower().replace("_", "-")
        if name not in names:
            choices = " or ".join(names) if len(names) == 2 else f"one of {', '.join(names)}"
            raise UsageError(f"{option} {text!r} is unknown; choose {choices}")
        return name

    return read


def _kinds(option: str, text: str) -> list[str]:
    read = _one_of(*_STRESS_KINDS)
    kinds = [read(option, name) for name in text.split(",")]
    if len(set(kinds)) < len(kinds):
        raise UsageError(f"{option} {text!r} names a kind twice; name each once")
    return kinds


def _several_of(*names: str) -> Callable[[str, str], list[str]]:
    read = _one_of(*names)

    def read_all(option: str, text: str) -> list[str]:
        return [read(option, name) for name in text.split(",")]

    return read_all


def _named_sources(option: str, values: list[str]) -> list[dict[str, str]]:
    found = []
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise UsageError(f"{option} {value!r} is not understood; give NAME=FILE.py")
        found.append({"name": name, "code": read_source(Path(path))})
    return found


def _memory(option: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found["number"]) * _UNITS[found["unit"].lower()]) if found is not None else -1
    if not 0 <= size < 1 << 63:
        raise UsageError(f"{option} {text!r} is not a size; give bytes, or a number with MiB or GiB (8GiB)")
    return size


def _as_given(option: str, value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: the field that it sets, its type, and the function that makes the field's value."""

    field: str
    name: str
    type: Any
    metavar: str | None
    help: str
    read: Callable[[str, Any], Any] = _as_given

    @property
    def flag(self) -> str:
        """Return the option as it is written on the command line."""
        return self.name.partition("/")[0]


_OPTIONS = (
    _Option(
        *("timing_precision", "--timing-precision", float, "0.001..1"),
        "Stop timing when both speedups are known to this relative precision, at 95 % confidence. Default 0.01.",
    ),
    _Option(
        *("speedup_kind", "--speedup-kind", str, "device|end-to-end"),
        "Which speedup counts: by device time, or by the time that a caller waits. Default device.",
        _one_of("device", "end-to-end"),
    ),
    _Option(
        *("candidate_device_memory_bytes", "--candidate-memory", str, "BYTES|MiB|GiB"),
        "Most device memory of the candidate, at least 64MiB, such as 8GiB. Default twice the reference's plus 4GiB.",
        _memory,
    ),
    _Option(
        *("allowed_precision", "--allowed-precision", str, "tf32|fp16|bf16|fp8"),
        "Least precise arithmetic that a candidate may use internally. Default: the reference's own.",
        _one_of("tf32", "fp16", "bf16", "fp8"),
    ),
    _Option(
        *("precision", "--precision", str, "fp64|fp32|fp16|bf16|fp8"),
        "Cast the problem to this precision: inputs, and parameters of both sides. Default: as the reference makes them.",
        _one_of("fp64", "fp32", "fp16", "bf16", "fp8"),
    ),
    _Option(
        *("backward", "--backward/--no-backward", bool, None),
        "Whether calls make a backward pass too, and gradients are compared. Default: as inputs require gradients.",
    ),
    _Option(
        *("module_mode", "--module-mode", str, "train|eval|both"),
        "Call modules in this mode. In training mode, the buffers that a call changes are compared. Default: as they are.",
        _one_of("train", "eval", "both"),
    ),
    _Option(
        *("stress_inputs", "--stress/--no-stress", bool, None),
        "Whether candidates must be right on stress inputs too. Default: yes, unless a tolerance is given and no kind.",
    ),
    _Option(
        *("stress_kinds", "--stress-kinds", str, "KIND,..."),
        f"The kinds of stress to use: {', '.join(_STRESS_KINDS)}. Default all.",
        _kinds,
    ),
    _Option(
        *("output_reuse", "--output-reuse", str, "label|reject"),
        "How to treat a candidate whose calls overwrite earlier outputs: as a finding, or as wrong. Default label.",
        _one_of("label", "reject"),
    ),
    _Option(
        *("provenance_policy", "--provenance", str, "label|reject-decoys|require-own-kernels"),
        "How to treat a candidate whose own kernels did not do the work. Default reject-decoys.",
        _one_of("label", "reject-decoys", "require-own-kernels"),
    ),
    _Option(
        *("profile_level", "--profile", str, "none|kernels|counters"),
        "What to show of a correct candidate's kernels: times and owners, or Nsight Compute's counters too. Default none.",
        _one_of("none", "kernels", "counters"),
    ),
    _Option(
        *("sanitize", "--sanitize", str, "none|winners|all"),
        "Which right candidates run under compute-sanitizer: those faster than the reference, or all. Default none.",
        _one_of("none", "winners", "all"),
    ),
    _Option(
        *("memory_errors", "--memory-errors", str, "label|reject"),
        "How to treat a right candidate that broke a rule of memory: as a finding, or as wrong. Default reject.",
        _one_of("label", "reject"),
    ),
    _Option(
        *("require_deterministic", "--require-deterministic/--allow-nondeterministic", bool, None),
        "Whether a right candidate is wrong if a repeated call gives other bytes. Default: it is a label.",
    ),
    _Option(
        *("code_listing", "--listing", str, "none|ptx|sass|all"),
        "Which code of a correct candidate's kernels to return. Default none.",
        _one_of("none", "ptx", "sass", "all"),
    ),
    _Option(
        *("launch_mode", "--launch-mode", str, "eager|cuda-graph"),
        "How timed calls of both sides reach the device. Default eager.",
        _one_of("eager", "cuda-graph"),
    ),
    _Option(
        *("reference_backend", "--reference-backend", str, "eager|torch-compile"),
        f"What the candidate is timed against: {', '.join(_BACKENDS)}. Default eager.",
        _one_of(*_BACKENDS),
    ),
    _Option(
        *("baselines", "--baselines", str, "BACKEND,..."),
        "Also time the candidate beside these, named as for --reference-backend.",
        _several_of(*_BACKENDS),
    ),
    _Option(
        *("library_baselines", "--library-baseline", list[str], "NAME=FILE.py"),
        "Also time the candidate beside the class of this file, which stands in for the reference's. Repeatable.",
        _named_sources,
    ),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The values given for these options."""

    given: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return the chosen fields of a request, as `request_from_json` takes them.

        Raises:
            UsageError: a value cannot be used, or two options contradict each other.
        """
        if self.given.get("stress_inputs") is False and self.given.get("stress_kinds") is not None:
            raise UsageError("--stress-kinds and --no-stress contradict each other; give one of them")
        return {
            option.field: option.read(option.flag, self.given[option.field])
            for option in _OPTIONS
            if self.given.get(option.field) not in (None, [])
        }


#: Value for a command when no option was given.
NOTHING_CHOSEN = Chosen()


def with_chosen(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with these options in place of its parameter `chosen`, if it has one."""
    signature = inspect.signature(command, eval_str=True)
    if "chosen" not in signature.parameters:
        return command
    fixed: Mapping[str, Any] = signature.parameters["chosen"].default.given
    options = [option for option in _OPTIONS if option.field not in fixed]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {option.field: arguments.pop(option.field) for option in options}
        command(**arguments, chosen=Chosen({**given, **fixed}))

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _parameters(options) if name == "chosen" else [parameter]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(options: Sequence[_Option]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            option.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                option.type | None,
                typer.Option(option.name, metavar=option.metavar, help=option.help),
            ],
        )
        for option in options
    ]
