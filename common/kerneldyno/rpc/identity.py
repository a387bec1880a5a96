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
grows. A field that is added belongs to the identity, unless NOT_THE_WORK names it. Pure.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
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


#: Rules of types that are no messages, and of lists of them.
_RULES: dict[int, _Rule] = {
    FieldDescriptor.TYPE_STRING: (b"s", _text),
    FieldDescriptor.TYPE_DOUBLE: (b"d", _double),
    **dict.fromkeys(
        (
            *(FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM),
            *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32),
            *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64),
        ),
        (b"i", _integer),
    ),
}
_LIST_RULES: dict[int, _Rule] = {
    FieldDescriptor.TYPE_STRING: (b"x", _texts),
    FieldDescriptor.TYPE_ENUM: (b"e", lambda values: b"".join(map(_integer, values))),
}
#: Rules of fields that are newer than the form and not written as their type says, by the name of their message.
_NEWER: dict[str, Mapping[str, _Rule]] = {
    pb.StageTimeouts.DESCRIPTOR.full_name: {"build_timeout": _newer_duration(DEFAULT_BUILD_SECONDS)}
}


class Form:
    """The canonical form of one message type: all its fields but some, each written as its type says.

    Args:
        descriptor: The type.
        excluded: Fields that do not belong to the identity.

    Raises:
        TypeError: a field is named that does not exist, or one has a type that has no rule yet.
    """

    def __init__(self, descriptor: Descriptor, excluded: Collection[str] = ()) -> None:
        fields, special = descriptor.fields_by_name, _NEWER.get(descriptor.full_name, {})
        if unknown := {*excluded, *special} - set(fields.keys()):
            raise TypeError(f"{descriptor.full_name} has no {', '.join(sorted(unknown))}")
        described = DescriptorProto()
        descriptor.CopyToProto(described)
        self._rules = {
            field.number: None
            if field.name in excluded
            else special.get(field.name) or _rule(field, fields[field.name].message_type)
            for field in described.field
        }

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

    def write_all(self, messages: Collection[Message]) -> bytes:
        """Return the fields of each of `messages`."""
        written = [self.write(message) for message in messages]
        return b"".join(_length(len(data)) + data for data in written)


def _rule(field: FieldDescriptorProto, message: Descriptor | None) -> _Rule:
    """Return how a field is written; `message` is the type of one that holds messages."""
    is_list = field.label == FieldDescriptorProto.LABEL_REPEATED
    if message is None:
        if rule := (_LIST_RULES if is_list else _RULES).get(field.type):
            return rule
        raise TypeError(f"{field.name}: there is no rule for fields of type {field.type} yet")
    if message.full_name == "google.protobuf.Duration":
        return b"t", _duration
    if message.GetOptions().map_entry:
        return b"p", _map
    form = Form(message)
    return (b"l", form.write_all) if is_list else (b"m", form.write)


def _unknown(fields: Any) -> bytes:
    parts: list[bytes] = []
    for field in sorted(fields, key=lambda field: field.field_number):  # stable: repeated fields keep their order
        value = field.data
        data = value if isinstance(value, bytes) else str(value).encode() if isinstance(value, int) else _unknown(value)
        parts += (_head(field.field_number, b"u", len(data) + 1), bytes([field.wire_type]), data)
    return b"".join(parts)


REQUEST = Form(pb.EvalRequest.DESCRIPTOR, excluded=NOT_THE_WORK)
# Two identical nodes are one environment.
ENVIRONMENT = Form(pb.Environment.DESCRIPTOR, excluded={"node_id", "device"})


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
