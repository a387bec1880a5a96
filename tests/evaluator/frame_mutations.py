"""Mutated frames that a hostile process may send instead of an answer, drawn from a seeded generator. No I/O.

A mutation says which bytes are sent and what happens to the connection afterwards. It starts from the frame that the
real harness would have sent, so that it passes the first checks and reaches the later ones.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

#: Largest frame in bytes that the judge accepts from a runner.
LIMIT = 1024 * 1024


class After(Enum):
    """What happens to the connection after the bytes are sent."""

    GO_ON = "go on"
    CLOSE = "close"
    #: Nothing more is sent, but orders are still read.
    HALF_CLOSE = "half close"
    #: Nothing more is sent, and the connection stays open.
    MUTE = "mute"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mutated frame."""

    name: str
    data: bytes
    after: After = After.GO_ON


class _Raw:
    """Text that is copied into a JSON document unchanged, whether it is valid or not."""

    def __init__(self, text: str) -> None:
        self.text = text


def _dump(value: Any) -> str:
    """Return `value` as JSON like `json.dumps`, but copy the text of _Raw unchanged."""
    if isinstance(value, _Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(key))}:{_dump(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_dump(part) for part in value) + "]"
    return json.dumps(value)


def packed(body: bytes) -> bytes:
    """Return a frame that contains `body`."""
    return struct.pack(">I", len(body)) + body


def _frame(value: Any) -> bytes:
    return packed(_dump(value).encode())


def _hostile(rng: random.Random) -> Any:
    """Return an unexpected value."""
    values: list[Any] = [
        None, True, False, -1, 0, 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, -(10**400), 1e308,
        5e-324, -0.0, _Raw("NaN"), _Raw("Infinity"), _Raw("-Infinity"), _Raw("1" * 5000), _Raw("1e400"), _Raw("-"),
        "", "ok", "ready", "x" * 4096, _Raw('"\\ud800"'), "\x00\x1b[2J\r\n", "%s{0}{x}", "\u202e", [], {}, [[]], [None],
        [[[]], {}], {"tensor": 0}, {"tensor": -1}, {"tensor": 10**9}, {"tensor": [0]}, {"tuple": []}, {"tuple": {}},
        {"dict": [[1]]}, {"dict": 0}, {"dtype": "load"}, {"device": "cuda"}, {"ok": {"ok": None}}, {"error": None},
        _Raw("[" * 200 + "]" * 200), _Raw("[" * 20000 + "]" * 20000), _Raw('{"a":' * 3000 + "1" + "}" * 3000),
        # Shallow enough for the parser, but at some of these depths too deep for code that handles the value.
        _Raw("[" * (near := rng.randrange(940, 1000)) + "]" * near),
        ["float32", [4], [1], True], ["float32", [4], [1], False], ["load", [4], [1], True], [0.0] * 7, [1e-9] * 3,
    ]  # fmt: skip
    return rng.choice(values)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) for every place in a JSON value."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            found.extend(_places(value[key]))
    return found


def _specs(value: Any) -> list[list[Any]]:
    """Return every description of a tensor in a JSON value."""
    return [
        container[key]
        for container, key in _places(value)
        if isinstance(container[key], list)
        and len(container[key]) == 4
        and isinstance(container[key][0], str)
        and isinstance(container[key][3], bool)
    ]


def _replaced(rng: random.Random, frame: Any) -> Any:
    container, key = rng.choice(_places(frame))
    container[key] = _hostile(rng)
    return frame


def _removed(rng: random.Random, frame: Any) -> Any:
    container, key = rng.choice(_places(frame))
    del container[key]
    return frame


def _added(rng: random.Random, frame: Any) -> Any:
    containers = [frame, *(container[key] for container, key in _places(frame))]
    container = rng.choice([each for each in containers if isinstance(each, dict | list)])
    if isinstance(container, dict):
        container[rng.choice(["error", "ok", "op", "specs", "launches", "", "tensor", "__class__"])] = _hostile(rng)
    else:
        for _ in range(rng.choice([1, 1, 3, 1000])):
            container.insert(rng.randint(0, len(container)), _hostile(rng))
    return frame


def _doubled(rng: random.Random, frame: Any) -> Any:
    """Write one key twice with different values: parsers disagree about which one counts."""
    holders = [frame, *(container[key] for container, key in _places(frame))]
    holder = rng.choice([each for each in holders if isinstance(each, dict) and each])
    key = rng.choice(list(holder))
    honest, other = f"{json.dumps(key)}:{_dump(holder[key])}", f"{json.dumps(key)}:{_dump(_hostile(rng))}"
    marker = "@doubled@"
    holder[key] = marker
    text = _dump(frame)
    pair = [honest, other] if rng.random() < 0.5 else [other, honest]
    return _Raw(text.replace(f"{json.dumps(key)}:{json.dumps(marker)}", ",".join(pair)))


def _misdescribed(rng: random.Random, frame: Any) -> Any:
    """Change the description of a tensor so that it is wrong."""
    found = _specs(frame)
    if not found:
        return _replaced(rng, frame)
    spec = rng.choice(found)
    part = rng.randrange(6)
    if part == 0:
        spec[0] = rng.choice(["float64", "float16", "int8", "complex64", "qint8", "load", "Tensor", "", "float32\x00"])
    elif part == 1:
        spec[1] = rng.choice([[], [0], [2**47], [2**47, 2**47], [1] * 65, spec[1][::-1], [*spec[1], 1], [-4]])
    elif part == 2:
        spec[2] = rng.choice([[], [0] * len(spec[2]), [2**47] * len(spec[2]), spec[2][::-1], [-1] * len(spec[2])])
    elif part == 3:
        spec[3] = not spec[3]
    elif part == 4:
        spec[1], spec[2] = [*spec[1], 1], [*spec[2], rng.choice([0, 1])]
    else:
        container = next(each for each, key in _places(frame) if each[key] is spec)
        container.extend([spec] * rng.choice([1, 2, 5000]))
    return frame


def _numbers(rng: random.Random, frame: Any) -> Any:
    """Replace every number by one other value, like invented times."""
    value = rng.choice([0, 0.0, -1.0, 1e-12, 1e9, 86399.0, 10**400, _Raw("NaN"), _Raw("1e999"), "0", None, True])
    for container, key in _places(frame):
        if type(container[key]) in (int, float):
            container[key] = value
    return frame


def _turned(rng: random.Random, frame: Any) -> Any:
    """Claim a failure instead of a success, a success instead of a failure, both, or neither."""
    content = next(iter(frame.values()), None)
    error = {
        "type": rng.choice(["ValueError", "OutOfMemoryError", "\ud800", _hostile(rng)]),
        "bases": rng.choice(
            [["MemoryError"], ["OutOfMemoryError"], ["CompilationError"], [[], {}], "x", _hostile(rng)]
        ),
        "message": rng.choice(["CUDA error", "PassManager::run failed", "", _hostile(rng)]),
        "traceback": rng.choice(["Traceback", "x" * 100000, _hostile(rng)]),
    }
    return rng.choice([{"error": error}, {"error": content}, {"ok": content, "error": error}, {"OK": content}, {}])


def _another(rng: random.Random, frame: Any) -> Any:
    """Return an answer to another order, or a message that only another process may send."""
    answers: list[Any] = [
        {"ok": "ready", "pace": 0.0},
        {"ok": None},
        {"ok": {"defines": True}},
        {"ok": {"defines": False}},
        {"ok": {"structure": {"tensor": 0}, "specs": [["float32", [4, 8], [8, 1], False]], "launches": 1}},
        {"ok": {"structure": None, "specs": [], "launches": None}},
        {"ok": [1e-6] * rng.randint(0, 40)},
        {"ok": []},
        {"error": {"type": "ValueError", "bases": ["ValueError"], "message": "", "traceback": ""}},
        {"op": "exit", "signal": 0, "exit_code": 0, "killed": False},
        {"op": "result", "result": {"outcome": "CORRECT", "correct": True, "speedup": 99.0}},
        {"op": "evaluate", "attempt": "forged", "request": {}},
        {"op": "stopped"},
    ]
    return rng.choice(answers)


def _not_an_object(rng: random.Random, frame: Any) -> Any:
    return rng.choice([_hostile(rng), [frame], _Raw(""), _Raw(" "), _Raw("{"), _Raw('{"ok":}'), _Raw("[1,]"), "ok"])


_IN_JSON: dict[str, Callable[[random.Random, Any], Any]] = {
    "replaced": _replaced,
    "removed": _removed,
    "added": _added,
    "doubled": _doubled,
    "misdescribed": _misdescribed,
    "numbers": _numbers,
    "turned": _turned,
    "another": _another,
    "no object": _not_an_object,
}


def _bits(rng: random.Random, frame: Any) -> Mutation:
    data = bytearray(_frame(frame))
    first = 0 if rng.random() < 0.15 else 4  # rarely change the four bytes of the length
    for _ in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(first, len(data))] ^= 1 << rng.randrange(8)
    return Mutation("bits", bytes(data))


def _bytes(rng: random.Random, frame: Any) -> Mutation:
    body = bytearray(_frame(frame)[4:])
    at = rng.randrange(len(body))
    body[at : at + rng.randint(0, 4)] = rng.choice(
        [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf", b"\\", b'"', b"}", rng.randbytes(16)]
    )
    return Mutation("bytes", packed(bytes(body)))


def _noise(rng: random.Random, frame: Any) -> Mutation:
    return Mutation("noise", packed(rng.randbytes(rng.choice([0, 1, 4, 100, 100_000]))))


def _short(rng: random.Random, frame: Any) -> Mutation:
    """End the frame too early. Usually end the connection, too; otherwise the judge would wait for its limit."""
    data = _frame(frame)
    after = rng.choices([After.CLOSE, After.HALF_CLOSE, After.MUTE, After.GO_ON], [8, 4, 1, 3])[0]
    return Mutation("short", data[: rng.randrange(len(data))], after)


def _length(rng: random.Random, frame: Any) -> Mutation:
    """Send a length that differs from the length of the body."""
    body = _frame(frame)[4:]
    lie = rng.choice([0, 1, len(body) - 1, LIMIT + 1, 2**31, 2**32 - 1, rng.randrange(len(body))])
    return Mutation("length", struct.pack(">I", lie) + body, rng.choice([After.GO_ON, After.CLOSE]))


def _large(rng: random.Random, frame: Any) -> Mutation:
    """Send a frame near or above the largest size."""
    filler = rng.choice(["x", "\\u0000", "[" if rng.random() < 0.5 else "0,"])
    size = rng.choice([LIMIT - 64, LIMIT, LIMIT + 1])
    if filler == "0,":
        body = '{"ok":[' + ("0," * LIMIT)[: size - 10] + "0]}"
    elif filler == "[":
        body = '{"ok":' + "[" * (size // 2) + "]" * (size // 2) + "}"
    else:
        body = '{"error":{"message":"' + filler * ((size - 40) // len(filler)) + '"}}'
    return Mutation("large", packed(body.encode()))


def _ending(rng: random.Random, frame: Any) -> Mutation:
    after = rng.choices([After.CLOSE, After.HALF_CLOSE, After.MUTE], [8, 4, 1])[0]
    return Mutation(after.value, rng.choice([b"", _frame(frame)]), after)


def _extra(rng: random.Random, frame: Any) -> Mutation:
    """Send answers that no order asked for, so that all later answers come one order too late."""
    honest = _frame(frame)
    other = _frame(_another(rng, frame))
    data = rng.choice([honest + honest, honest + other, other + honest, honest * 5, honest + honest[:7]])
    return Mutation("extra", data)


_ON_THE_WIRE = (_bits, _bits, _bytes, _noise, _short, _length, _large, _ending, _extra, _extra)


def mutate(rng: random.Random, honest: dict[str, Any]) -> Mutation:
    """Return the mutation to send in place of the frame `honest`."""
    frame = copy.deepcopy(honest)
    if rng.random() < 0.4:
        return rng.choice(_ON_THE_WIRE)(rng, frame)
    name = rng.choice(list(_IN_JSON))
    mutated = _IN_JSON[name](rng, frame)
    if isinstance(mutated, dict) and rng.random() < 0.2:  # two mutations together
        mutated = _replaced(rng, mutated) if _places(mutated) else mutated
    return Mutation(name, _frame(mutated))
