"""Messages in frames: what is packed comes out again, and anything else is a ProtocolError. Pure."""

from __future__ import annotations

import base64
import contextlib
import json
import math

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.evaluator.shared import wire
from kerneldyno.evaluator.shared.messages import pack, unpack
from kerneldyno.rpc.validation import effective
from kerneldyno.v1 import evaluation_pb2 as pb
from kerneldyno.v1 import fleet_service_pb2 as fleet_pb

pytestmark = pytest.mark.pure

REQUEST = effective(pb.EvalRequest(id="a", reference_code='"\\\n\u2028é' * 100, kernel_code="k", labels={"k": "v"}))


def sent(text: object) -> object:
    """Return a field as the other end of a socket reads it."""
    return wire.decode(wire.encode({"field": text})[4:])["field"]


@pytest.mark.parametrize(
    "message",
    [
        REQUEST,
        pb.EvalRequest(),
        pb.EvalResult(outcome=pb.EvalResult.CORRECT, compiled=False, speedup=0.0),
        pb.NativeBuild(name="a", seconds=math.inf),
        fleet_pb.Device(name="cuda:0", memory_bytes=2**63 - 1),
    ],
)
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    found = unpack(type(message), sent(pack(message)))
    assert found == message
    assert [field.name for field, _ in found.ListFields()] == [field.name for field, _ in message.ListFields()]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1])
def test_every_number_keeps_its_bits(number: float) -> None:
    found = unpack(pb.EvalResult, sent(pack(pb.EvalResult(speedup=number)))).speedup
    assert math.copysign(1.0, found) == math.copysign(1.0, number)
    assert found == number or (math.isnan(found) and math.isnan(number))


def test_fields_of_a_newer_version_are_kept() -> None:
    newer = base64.b64encode(REQUEST.SerializeToString() + b"\xf8\xff\x01\x07").decode()  # field 4095 is 7
    assert pack(unpack(pb.EvalRequest, newer)) == newer


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "NoneType in place of a packed EvalResult"),
        ({"outcome": "CORRECT"}, "dict in place of"),
        ([], "list in place of"),
        (7, "int in place of"),
        ("CORRECT!", "not a packed EvalResult"),
        ("CAE", "not a packed EvalResult"),
        ("CAE=\n", "not a packed EvalResult"),
        ("\ud800", "not a packed EvalResult"),
        ("é" * 4, "not a packed EvalResult"),
        ("AAAA", "not a packed EvalResult"),
        (base64.b64encode(b"\x0a\x7f").decode(), "not a packed EvalResult"),  # a text that is longer than the message
        (base64.b64encode(b"\x0a\x02\xff\xfe").decode(), "not a packed EvalResult"),  # a text that is not UTF-8
        (json.dumps({"outcome": "CORRECT"}), "not a packed EvalResult"),
    ],
)
def test_anything_else_is_a_protocol_error(said: object, why: str) -> None:
    with pytest.raises(wire.ProtocolError, match=why):
        unpack(pb.EvalResult, said)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_bytes_and_no_text_do_anything_else(said: bytes | str) -> None:
    text = base64.b64encode(said).decode() if isinstance(said, bytes) else said
    for kind in (pb.EvalRequest, pb.EvalResult):
        with contextlib.suppress(wire.ProtocolError):
            assert isinstance(unpack(kind, text), kind)
