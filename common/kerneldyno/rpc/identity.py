"""Identity of work: which requests ask for the same verdict, and on which environments a verdict holds.

Two effective requests with the same digest are the same work: the scheduler runs one and answers both, and a stored
result may answer a later one. So the digest covers everything that may change the verdict, and nothing else. It is
computed over a canonical form defined here, because the bytes that protobuf writes may differ between its versions and
languages. Journals store digests, so tests/rpc/identity_vectors.json pins them, and a change of the form needs a new
version tag.

    form      = version tag, then the fields of the message
    fields    = each field that is set, in order of number; then unknown fields (of a newer contract), by number
    field     = number (4 bytes), type (1 byte), length (4 bytes), value

    type      value
    s         text, UTF-8
    i         integer, enum or boolean, 8 bytes, two's complement
    d         double, 8 bytes, IEEE 754; -0.0 is written as 0.0
    t         duration in nanoseconds, 8 bytes, two's complement
    m         the fields of a message
    e         enums in order, each as 8 bytes, two's complement
    x         texts in order, each as length (4 bytes) and UTF-8
    l         messages in order, each as length (4 bytes) and fields
    p         a map of texts, sorted by key: each key and value as length (4 bytes) and UTF-8
    u         unknown field: wire type (1 byte), then its bytes, its fields, or its number in decimal

Numbers are big-endian. A field is set when protobuf's presence says so: an optional field that was given, or any other
field that differs from its default. A value of no bytes (a message without fields) counts as not set, and so does the
default of a limit that is newer than the form. Because defaults are left out, digests stay the same when the contract
grows. Pure.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from kerneldyno.rpc.validation import DEFAULT_BUILD_SECONDS
from kerneldyno.v1 import evaluation_pb2 as pb

DIGEST_BYTES = 32
FINGERPRINT_BYTES = 16
#: Fields of a request that name it, or say when and how it is answered; they do not change the verdict.
NOT_THE_WORK = (
    *("id", "labels", "priority", "skip_cache", "speedup_kind"),
    *("total_timeout", "client_grace", "trace_context"),
)

_REQUEST_TAG = b"kerneldyno.request.1\0"
_ENVIRONMENT_TAG = b"kerneldyno.environment.1\0"

_head = struct.Struct(">IcI").pack
_length = struct.Struct(">I").pack
_integer = struct.Struct(">q").pack
_float64 = struct.Struct(">d").pack

_Rule = tuple[bytes, Callable[[Any], bytes]]  # type byte, and a function that writes the value


def _text(value: str) -> bytes:
    return value.encode()


def _double(value: float) -> bytes:
    return _float64(value + 0.0)


def _duration(value: Any) -> bytes:
    return _integer(value.seconds * 1_000_000_000 + value.nanos)


def _map(value: Mapping[str, str]) -> bytes:
    pairs = sorted((key.encode(), item.encode()) for key, item in value.items())
    return b"".join(_length(len(text)) + text for pair in pairs for text in pair)


def _texts(values: Collection[str]) -> bytes:
    return b"".join(_length(len(text)) + text for text in map(str.encode, values))


def _newer_duration(default_seconds: int) -> _Rule:
    """Return the rule for a limit that requests did not have at first: its default is written as if it were not set."""
    default = _integer(default_seconds * 1_000_000_000)
    return b"t", lambda value: b"" if (written := _duration(value)) == default else written


TEXT: _Rule = (b"s", _text)
INTEGER: _Rule = (b"i", _integer)
DOUBLE: _Rule = (b"d", _double)
DURATION: _Rule = (b"t", _duration)
MAP: _Rule = (b"p", _map)
TEXTS: _Rule = (b"x", _texts)
ENUMS: _Rule = (b"e", lambda values: b"".join(map(_integer, values)))


class Form:
    """The canonical form of one message type: which of its fields belong to the identity, and how they are written.

    Raises:
        TypeError: a field of `descriptor` is neither included nor excluded, or both, or does not exist. Anyone who adds
            a field to the contract must decide which it is.
    """

    def __init__(self, descriptor: Descriptor, included: Mapping[str, _Rule], excluded: Collection[str] = ()) -> None:
        undecided = {field.name for field in descriptor.fields} ^ (included.keys() | set(excluded))
        undecided |= included.keys() & set(excluded)
        if undecided:
            raise TypeError(f"{descriptor.full_name}: decide whether {', '.join(sorted(undecided))} identify the work")
        self._rules = {field.number: included.get(field.name) for field in descriptor.fields}

    def write(self, message: Message) -> bytes:
        """Return the fields of `message`, without a version tag."""
        parts: list[bytes] = []
        for field, value in message.ListFields():
            rule = self._rules[field.number]
            if rule is None:
                continue
            type_, encode = rule
            data = encode(value)
            if data:
                parts += (_head(field.number, type_, len(data)), data)
        if len(unknown := UnknownFieldSet(message)):
            parts.append(_unknown(unknown))
        return b"".join(parts)

    def one(self) -> _Rule:
        """Return the rule for a field that holds one such message."""
        return b"m", self.write

    def several(self) -> _Rule:
        """Return the rule for a field that holds a list of such messages."""

        def write_all(messages: Collection[Message]) -> bytes:
            written = [self.write(message) for message in messages]
            return b"".join(_length(len(data)) + data for data in written)

        return b"l", write_all


def _unknown(fields: Any) -> bytes:
    parts: list[bytes] = []
    for field in sorted(fields, key=lambda field: field.field_number):  # stable: repeated fields keep their order
        value = field.data
        data = value if isinstance(value, bytes) else str(value).encode() if isinstance(value, int) else _unknown(value)
        parts += (_head(field.field_number, b"u", len(data) + 1), bytes([field.wire_type]), data)
    return b"".join(parts)


REQUEST = Form(
    pb.EvalRequest.DESCRIPTOR,
    {
        "reference_code": TEXT,
        "kernel_code": TEXT,
        "entry_point": TEXT,
        "backend": TEXT,
        "toolkit": TEXT,
        "num_correct_trials": INTEGER,
        "num_perf_trials": INTEGER,
        "num_warmup": INTEGER,
        "tolerance": Form(
            pb.Tolerance.DESCRIPTOR, {"preset": INTEGER, "atol": DOUBLE, "rtol": DOUBLE, "matched_share": DOUBLE}
        ).one(),
        "allowed_precision": INTEGER,
        "reference_backend": INTEGER,
        "launch_mode": INTEGER,
        "timing_precision": DOUBLE,
        "candidate_device_memory_bytes": INTEGER,
        "timeouts": Form(
            pb.StageTimeouts.DESCRIPTOR,
            {
                "load_timeout": DURATION,
                "compile_timeout": DURATION,
                "correctness_timeout": DURATION,
                "timing_timeout": DURATION,
                "build_timeout": _newer_duration(DEFAULT_BUILD_SECONDS),
            },
        ).one(),
        "device": Form(
            pb.DeviceSelector.DESCRIPTOR,
            {
                "kind": TEXT,
                "model": TEXT,
                "min_memory_bytes": INTEGER,
                "node_labels": MAP,
                "min_devices": INTEGER,
            },
        ).one(),
        "run_performance": INTEGER,
        "enable_profiling": INTEGER,
        "cases_code": TEXT,
        "cases": Form(pb.Case.DESCRIPTOR, {"inputs_json": TEXT, "expected_json": TEXT, "name": TEXT}).several(),
        "stress_inputs": INTEGER,
        "provenance_policy": INTEGER,
        "output_reuse": INTEGER,
        "profile_level": INTEGER,
        "sanitize": INTEGER,
        "memory_errors": INTEGER,
        "code_listing": INTEGER,
        "stress_kinds": ENUMS,
        "precision": INTEGER,
        "backward": INTEGER,
        "module_mode": INTEGER,
        "workloads": Form(pb.Workload.DESCRIPTOR, {"name": TEXT, "value_json": TEXT}).several(),
        "workloads_time": DURATION,
        "baselines": ENUMS,
        "library_baselines": Form(pb.LibraryBaseline.DESCRIPTOR, {"name": TEXT, "code": TEXT}).several(),
        "salt": TEXT,
        "kernel_files": Form(pb.CandidateFile.DESCRIPTOR, {"path": TEXT, "content": TEXT}).several(),
        "build_flags": Form(pb.BuildFlags.DESCRIPTOR, {"cuda": TEXTS, "cpp": TEXTS, "libraries": TEXTS}).one(),
    },
    excluded=NOT_THE_WORK,
)

ENVIRONMENT = Form(
    pb.Environment.DESCRIPTOR,
    {
        "device_model": TEXT,
        "driver_version": TEXT,
        "torch_version": TEXT,
        "triton_version": TEXT,
        "cuda_version": TEXT,
        "python_version": TEXT,
        "kerneldyno_version": TEXT,
        "triton_interpreter": INTEGER,
    },
    excluded={"node_id", "device"},  # two identical nodes are one environment
)


def digest(request: pb.EvalRequest) -> bytes:
    """Return the identity of the work that `request` asks for: SHA-256, 32 bytes.

    Args:
        request: an effective request (kerneldyno.rpc.validation.effective), so that a request that leaves a field out
            and one that gives its default are the same work.
    """
    return hashlib.sha256(_REQUEST_TAG + REQUEST.write(request)).digest()


def environment_fingerprint(environment: pb.Environment, device_model: str) -> bytes:
    """Return 16 bytes that identify everything about a machine that may change a verdict or a time.

    Node id and device index do not count.

    Args:
        environment: the environment of a node or of a result.
        device_model: model of the device in question; a node has several devices and leaves this field empty.
    """
    place = pb.Environment()
    place.CopyFrom(environment)
    place.device_model = device_model
    return hashlib.sha256(_ENVIRONMENT_TAG + ENVIRONMENT.write(place)).digest()[:FINGERPRINT_BYTES]
