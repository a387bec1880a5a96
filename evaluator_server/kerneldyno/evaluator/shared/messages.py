"""Messages of the contract in frames between trusted processes: protobuf's bytes, as base64 text.

Only the server, judges and the builder import this module. Runners must not load protobuf, and what they send is never
parsed as a message.
"""

from __future__ import annotations

import base64
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from . import wire

_Kind = TypeVar("_Kind", bound=Message)


def pack(message: Message) -> str:
    """Return `message` as text for a field of a frame."""
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def unpack(kind: type[_Kind], said: object) -> _Kind:
    """Return the message of type `kind` that `said` holds, a field of a received frame. Unknown fields are kept.

    Raises:
        ProtocolError: `said` is not what `pack` returns for such a message.
    """
    if not isinstance(said, str):
        raise wire.ProtocolError(f"{type(said).__name__} in place of a packed {kind.DESCRIPTOR.name}")
    message = kind()
    try:
        message.ParseFromString(base64.b64decode(said, validate=True))
    except (ValueError, DecodeError) as error:
        raise wire.ProtocolError(f"not a packed {kind.DESCRIPTOR.name}: {str(error)[:100]}") from None
    return message
