"""JSON forms of requests and results, for people and for files.

Reading accepts shorthand whose meaning is clear (`"timeouts": {"load_timeout": 5}`, `"priority": "high"`,
`"tolerance": 0.01`, `"kernel_files": {"softmax.cu": "..."}`); a field that does not exist is an error that names it.
Writing is proto-JSON with the original field names. Limits are not checked here; see `kerneldyno.rpc.validation`.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import EnumDescriptor

from kerneldyno.rpc.profiles import asks_for_profile, decides_about_profile
from kerneldyno.rpc.validation import STAGE_TIMEOUT_FIELDS
from kerneldyno.v1 import evaluation_pb2 as pb

_NAMES = {field.name: field.name for field in pb.EvalRequest.DESCRIPTOR.fields} | {
    field.json_name: field.name for field in pb.EvalRequest.DESCRIPTOR.fields
}
#: The two fields that say whether there is a profile, in both spellings.
_PROFILE_NAMES = frozenset(key for key, name in _NAMES.items() if name in ("enable_profiling", "profile_level"))


def request_from_json(data: Mapping[str, Any]) -> pb.EvalRequest:
    """Return the request that `data` describes.

    Raises:
        ValueError: a field does not exist or its value has the wrong type; the message names it.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a request must be a JSON object, not {type(data).__name__}")
    plain: dict[str, Any] = {}
    for key, value in data.items():
        if key == "timeout":  # one limit for every stage, as in KernelGYM's requests
            plain.setdefault("timeouts", {})
            plain["timeouts"] = {name: _duration(value, "timeout") for name in STAGE_TIMEOUT_FIELDS} | plain["timeouts"]
            continue
        name = _NAMES.get(key)
        if name is None:
            close = difflib.get_close_matches(str(key), _NAMES, n=1)
            raise ValueError(f"unknown field {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        if value is None:  # the default, as in proto-JSON
            continue
        converted = _CONVERT[name](value) if name in _CONVERT else value
        plain[name] = plain[name] | converted if name == "timeouts" and name in plain else converted
    try:
        return json_format.ParseDict(_quote_non_finite(plain), pb.EvalRequest())
    except (json_format.ParseError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that are `given`, and the fields of `defaults` that are not given.

    `enable_profiling` and `profile_level` are one choice: if one of them is given, neither is taken from `defaults`.
    """
    if any(given.get(name) is not None for name in _PROFILE_NAMES):
        defaults = {name: value for name, value in defaults.items() if name not in _PROFILE_NAMES}
    return {**defaults, **given}


def declines_profile(fields: Mapping[str, Any]) -> bool:
    """Return whether these fields of a request decline a profile. Malformed fields do not."""
    try:
        request = request_from_json({name: value for name, value in fields.items() if name in _PROFILE_NAMES})
    except ValueError:
        return False
    return decides_about_profile(request) and not asks_for_profile(request)


def request_to_json(request: pb.EvalRequest) -> dict[str, Any]:
    """Return `request` as proto-JSON with the original field names; fields that are not set are left out."""
    return json_format.MessageToDict(request, preserving_proto_field_name=True)


def result_to_json(result: pb.EvalResult) -> dict[str, Any]:
    """Return `result` as proto-JSON with the original field names, empty fields included."""
    return json_format.MessageToDict(
        result, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def result_from_json(data: Mapping[str, Any]) -> pb.EvalResult:
    """Return the result that `result_to_json` wrote; fields of a newer version are ignored."""
    return json_format.ParseDict(dict(data), pb.EvalResult(), ignore_unknown_fields=True)


def stage_name(stage: pb.Stage.ValueType) -> str:
    """Return the name of a stage: "awaiting_lease" for STAGE_AWAITING_LEASE."""
    return pb.Stage.Name(stage).removeprefix("STAGE_").lower()


def _duration(value: Any, field: str) -> Any:
    """Turn a number of seconds into proto-JSON's "12.5s"; pass anything else on for proto-JSON to check."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value):
        raise ValueError(f"{field}: {value} is not a duration")
    return f"{value:.9f}".rstrip("0").rstrip(".") + "s"


def _timeouts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _duration(limit, f"timeouts.{name}") for name, limit in value.items() if limit is not None}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {name: _duration(value, "timeouts") for name in STAGE_TIMEOUT_FIELDS}
    raise ValueError("timeouts: give an object of stage limits, or one number of seconds for all stages")


def _enum(described: EnumDescriptor) -> Callable[[Any], Any]:
    """Return a converter that accepts names without prefix and capitals: "high" for PRIORITY_HIGH; also in a list."""
    prefix = described.values[0].name.removesuffix("UNSPECIFIED")

    def convert(value: Any) -> Any:
        if isinstance(value, bool):  # protobuf would take it for the number 0 or 1
            raise ValueError(f"{str(value).lower()} is not a name; give one such as {prefix}...")
        if isinstance(value, list):
            return [convert(each) for each in value]
        if not isinstance(value, str):
            return value
        name = value.strip().upper().replace("-", "_")
        return name if name.startswith(prefix) else prefix + name

    return convert


_preset = _enum(pb.Tolerance.Preset.DESCRIPTOR)


def _tolerance(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("tolerance: give a number, a preset, or an object")
    if isinstance(value, (int, float)):
        return {"preset": "PRESET_ALLCLOSE", "atol": value, "rtol": value}
    if isinstance(value, str):
        return {"preset": _preset(value)}
    if isinstance(value, Mapping) and "preset" in value:
        return {**value, "preset": _preset(value["preset"])}
    return value


def _library_baselines(value: Any) -> Any:
    """Accept {"flash-attn": "..."} beside the wire form, a list of names and sources."""
    return [{"name": name, "code": text} for name, text in value.items()] if isinstance(value, Mapping) else value


def _device(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _cases(value: Any) -> Any:
    """Accept {"inputs": [...], "expected": ...}, with a "name" or without, beside the wire form with its JSON texts."""
    if not isinstance(value, list):
        return value
    return [_case(each) for each in value]


def _case(value: Any) -> Any:
    if not isinstance(value, Mapping) or set(value) - {"name"} != {"inputs", "expected"}:
        return value
    named = {"name": value["name"]} if "name" in value else {}
    return {"inputs_json": json.dumps(value["inputs"]), "expected_json": json.dumps(value["expected"]), **named}


def _workloads(value: Any) -> Any:
    """Accept values, or {"name": ..., "value": ...}, beside the wire form, which carries values as JSON text."""
    if not isinstance(value, list):
        return value
    return [_workload(each) for each in value]


def _workload(value: Any) -> Any:
    if isinstance(value, Mapping) and "value_json" in value:
        return value
    if isinstance(value, Mapping) and set(value) == {"name", "value"}:
        return {"name": value["name"], "value_json": json.dumps(value["value"])}
    return {"value_json": json.dumps(value)}


def _kernel_files(value: Any) -> Any:
    """Accept {"softmax.cu": "..."} beside the wire form, a list of paths and contents."""
    return [{"path": path, "content": text} for path, text in value.items()] if isinstance(value, Mapping) else value


_CONVERT: dict[str, Callable[[Any], Any]] = {
    **{field.name: _enum(field.enum_type) for field in pb.EvalRequest.DESCRIPTOR.fields if field.enum_type},
    "timeouts": _timeouts,
    "total_timeout": lambda value: _duration(value, "total_timeout"),
    "client_grace": lambda value: _duration(value, "client_grace"),
    "tolerance": _tolerance,
    "device": _device,
    "cases": _cases,
    "kernel_files": _kernel_files,
    "workloads": _workloads,
    "library_baselines": _library_baselines,
    "workloads_time": lambda value: _duration(value, "workloads_time"),
}


def _quote_non_finite(value: Any) -> Any:
    """Write NaN and infinities the way proto-JSON reads them, so that validation can name the field that holds them."""
    if isinstance(value, Mapping):
        return {key: _quote_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quote_non_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
