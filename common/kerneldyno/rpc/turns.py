"""Turns of RewardService.StreamRewards: how they are named, and their limits beyond those of their requests.

The client names turns here before it sends them, and the scheduler names those that arrive without a name, so that the
same turn sent again is the same evaluation. Pure.
"""

from __future__ import annotations

import hashlib

from kerneldyno.rpc.candidate_files import has_native
from kerneldyno.rpc.validation import (
    MAX_ID_CHARS,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_SOURCE_BYTES,
    MISSING,
    Violation,
)
from kerneldyno.v1.reward_service_pb2 import Turn

#: Suffix of the turn's id for a second measurement.
AGAIN = "~again"
#: Labels that the scheduler adds to a turn's request, and to that of its second measurement.
TURN_LABELS = ("group", "sample", "turn")
AGAIN_LABEL = "again"

#: The group becomes a label; together with sample, turn and digest it is also the id of a turn.
MAX_GROUP_CHARS = MAX_LABEL_CHARS
MAX_TURN_ID_CHARS = MAX_ID_CHARS - len(AGAIN)
MAX_TURN_LABELS = MAX_LABELS - len(TURN_LABELS) - 1
_DIGEST_CHARS = 16


def turn_id(turn: Turn) -> str:
    """Return the id of `turn`: its own, else "<group>/<sample>/<turn_index>/" and a digest of its contents."""
    return turn.request.id or f"{turn.group}/{turn.sample}/{turn.turn_index}/{turn_digest(turn)[:_DIGEST_CHARS]}"


def turn_digest(turn: Turn) -> str:
    """Return the digest of all that `turn` holds except its trace: SHA-256, in hexadecimal."""
    if turn.request.HasField("trace_context"):
        plain = Turn()
        plain.CopyFrom(turn)
        plain.request.ClearField("trace_context")
        turn = plain
    return hashlib.sha256(turn.SerializeToString(deterministic=True)).hexdigest()


def check_turn(turn: Turn) -> list[Violation]:
    """Return what is wrong with `turn` itself; its request has its own limits (kerneldyno.rpc.validation)."""
    found = []
    if len(turn.group) > MAX_GROUP_CHARS or not turn.group.isprintable():
        found.append(Violation("group", f"must have at most {MAX_GROUP_CHARS} characters, all of them printable"))
    for name in ("sample", "turn_index"):
        if (index := getattr(turn, name)) < 0:
            found.append(Violation(name, f"is {index}; indices start at 0"))
    given, code, response = turn.request.id, turn.request.kernel_code, turn.response_text
    files = turn.request.kernel_files
    if len(given) > MAX_TURN_ID_CHARS or not given.isprintable() or given.endswith(AGAIN):
        text = f'must have at most {MAX_TURN_ID_CHARS} printable characters and not end in "{AGAIN}"'
        found.append(Violation("id", text))
    if code and response:
        found.append(Violation("turn", "has both kernel_code and response_text; give only one of them"))
    if files and response:
        text = (
            "has both kernel_files and response_text; a raw answer is one Python file, so give its code as kernel_code"
        )
        found.append(Violation("turn", text))
    if not code and not response and not has_native(files):
        text = f"{MISSING}; give kernel_code, or the model's raw answer as response_text"
        found.append(Violation("kernel_code", text))
    if (size := len(response.encode())) > MAX_SOURCE_BYTES:
        text = f"is {size} bytes long; at most {MAX_SOURCE_BYTES} bytes (1 MiB) are allowed"
        found.append(Violation("response_text", text))
    if len(turn.request.labels) > MAX_TURN_LABELS:
        text = f"has {len(turn.request.labels)} labels; a turn may have {MAX_TURN_LABELS}, as the server adds others"
        found.append(Violation("labels", text))
    return found
