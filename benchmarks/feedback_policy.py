"""A scripted model that repairs its program using only the text it gets.

It gets the chat that a rollout sends to an endpoint (kerneldyno.rollout.prompts) and answers with a program. It does
not learn, and it knows no problem. It reads the feedback on its answers as an engineer would ("line 12", "'masks' is
not defined", "not a finite number", "the inputs are larger"), gives each repair of feedback_repairs.py points for
matching words, and tries the best one. If nothing matches, it guesses. The points are an engineer's estimates and are
not fitted to the programs. The same rules read all forms of texts.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.feedback_repairs import Edit, edits
from kerneldyno.rewards.extraction import extract
from kerneldyno.rollout.problems import Message

#: Repairs of errors, and repairs of slow programs. A program that has run does not need the first group.
_AGAINST_ERRORS = {
    "rename",
    "import",
    "close",
    "colon",
    "constexpr",
    "argument",
    "power of two",
    "contiguous",
    "column",
}
_AGAINST_TIME = {
    *("larger block", "warps", "fewer copies", "no waiting", "one launch", "no double", "fewer operators"),
    *("smaller tile", "fewer stages", "one pass"),
}
#: Progress of a program, by the outcome that the text names.
_RANKS = {"CORRECT": 2, "INCORRECT": 1, "COMPILE_ERROR": 0, "RUNTIME_ERROR": 0, "INVALID": 0, "TIMEOUT": 0}
_OUTCOME = re.compile(r"\b(CORRECT|INCORRECT|COMPILE_ERROR|RUNTIME_ERROR|INVALID|TIMEOUT|OUT_OF_MEMORY|REJECTED)\b")
_RIGHT = "It is right"
#: In the first prompt, the reference follows this line, after the worked example.
_REFERENCE = "The program to make faster:"

#: Patterns in a text, and the points that they give to repairs.
_WORDS: tuple[tuple[str, dict[str, float]], ...] = (
    (r"SyntaxError|invalid syntax", {"close": 2, "colon": 2}),
    (r"never closed|unmatched|unexpected EOF|parenthes", {"close": 4}),
    (r"expected ':'", {"colon": 4}),
    (r"power of (2|two)", {"power of two": 5}),
    (r"missing \d+ required positional argument", {"argument": 5}),
    (r"\bconstexpr\b(?=.* (expected|must|not))", {"constexpr": 3}),
    (r"broadcast|incompatible dim|shape_compatible", {"column": 5}),
    (r"\.reshape\(|not contiguous", {"contiguous": 5}),
    (r"is not defined|has no attribute", {"rename": 2, "import": 1}),
    (r"not finite|not a finite|\bnan\b|\binf\b", {"overflow": 3, "epsilon": 2, "uninitialised": 1, "padding": 1}),
    (r"shape \([^)]*\), expected", {"dimension": 5, "axis": 2}),
    (r"dtype \S+, expected", {"dtype": 5}),
    (r"is an? \w+, expected|parts, expected", {"structure": 5}),
    (r"inputs differ from what", {"in place": 5}),
    (r"lower precision|rounding", {"precision": 3}),
    (r"fuse", {"one launch": 3, "fewer operators": 2}),
    (r"copies or fills", {"fewer copies": 4}),
    (r"you did not write|PyTorch's", {"fewer operators": 3, "fewer copies": 1}),
    (r"launches and Python|gaps between", {"no waiting": 3, "one launch": 2}),
    (r"of the roof", {"larger block": 1, "no double": 1}),
    (r"limited by ([a-z ]+ and )?registers", {"smaller tile": 3, "warps": 2}),
    (r"limited by ([a-z ]+ and )?shared memory|fewer stages", {"fewer stages": 3, "smaller tile": 2}),
    (r"\bspill", {"warps": 4, "smaller tile": 2}),
    (r"fewer bytes|second pass", {"one pass": 4, "fewer copies": 2, "fewer operators": 2}),
    (r"(write|writes|wrote) outside|mask of every store", {"bound": 3, "mask": 2, "fewer programs": 2, "grid": 1}),
    (r"(read|reads) outside|mask of every load", {"load mask": 3, "bound": 2, "mask": 1}),
    (r"size of the grid", {"fewer programs": 1, "grid": 1}),
    (r"\b[Rr]ace\b", {"barrier": 4}),
    (r"barrier separates", {"barrier": 2}),
    (r"barrier that not all|no barrier is in a branch", {"barrier for all": 4}),
    (r"nobody has written|Uninitialized", {"uninitialised": 3, "load mask": 2}),
    (r"\(the first call\)|first call after construction", {"scratch": 2}),
    (r"tuning runs", {"scratch": 3}),
)
#: Patterns about the inputs. They count less unless the text says that the answer was right on other inputs.
_INPUT_WORDS: tuple[tuple[str, dict[str, float]], ...] = (
    (r"\blarger?\b|outlier", {"overflow": 3}),
    (r"\bzeros?\b|equal elements|\bsmall|\btiny\b|\bsparse\b", {"epsilon": 3}),
    (r"\bsigns?\b|negative", {"sign": 3, "start": 2}),
)
_OTHERS_RIGHT = re.compile(r"\b(were|was|came out) right\b")
_LESS = 1 / 3


@dataclass(frozen=True, slots=True)
class Reading:
    """Information that the rules find in a text."""

    outcome: str = ""
    """An outcome's name, or empty when the text names none."""
    lines: frozenset[int] = frozenset()
    """Lines of the program that it names."""
    places: frozenset[int] = frozenset()
    """Lines of the program that it names as the place of an error of memory."""
    names: frozenset[str] = frozenset()
    """Names that it says are unknown or missing."""
    points: Mapping[str, float] = field(default_factory=dict)
    """What it says for kinds of repairs."""
    speed: float = 0.0
    """The speedup that it tells; 0 when it tells none."""
    void: bool = False
    """Whether it says that there is no verdict."""

    @property
    def rank(self) -> tuple[int, float]:
        """Progress of the program: the rank of its outcome, then its speedup."""
        return _RANKS.get(self.outcome, 0), self.speed


def read(text: str, sizes: frozenset[int] = frozenset()) -> Reading:
    """Read a text; `sizes` are the numbers in the prompt's reference, which show where a tensor ends."""
    found = _OUTCOME.search(text)
    outcome = found[1] if found else ("CORRECT" if _RIGHT in text else "")
    points: dict[str, float] = {}
    for pattern, repairs in _WORDS:
        if re.search(pattern, text):
            _add(points, repairs)
    weight = 1 if _OTHERS_RIGHT.search(text) else _LESS
    for pattern, repairs in _INPUT_WORDS:
        if re.search(pattern, text):
            _add(points, {kind: weight * value for kind, value in repairs.items()})
    for repairs in _of_numbers(text, sizes):
        _add(points, repairs)
    names = re.findall(r"name '(\w+)' is not defined|has no attribute '(\w+)'|argument: '(\w+)'", text)
    speed = re.search(r"(\d+(?:\.\d+)?)x the reference's speed|\"speedup\": (\d+(?:\.\d+)?)", text)
    return Reading(
        outcome,
        frozenset(int(number) for number in re.findall(r"\bline (\d+)", text)),
        frozenset(int(number) for number in re.findall(r"\bcandidate\.py:(\d+)", text)),
        frozenset(name for group in names for name in group if name),
        points,
        float(speed[1] or speed[2]) if speed else 0.0,
        "no verdict" in text,
    )


def answer(messages: Sequence[Message], seed: int) -> str:
    """Return the next answer to a chat whose first answer is the program to repair; chat and seed determine it."""
    programs = [_program(one["content"]) for one in messages if one["role"] == "assistant"]
    told = [one["content"] for one in messages[1:] if one["role"] == "user"]
    if not programs:
        raise ValueError("the chat has no program to repair")
    reference = messages[0]["content"].rpartition(_REFERENCE)[2]
    sizes = frozenset(int(number) for number in re.findall(r"\b\d+\b", reference))
    readings = [read(text, sizes) for text in told]
    if readings[-1].void:  # the last program got no verdict: submit it again
        return _block(programs[-1])
    best = max(range(len(programs)), key=lambda number: (*_progress(readings, number), -number))
    left = [edit for edit in edits(programs[best]) if edit.source not in programs]
    if not left:
        return _block(programs[best])
    quoted = _quoted(programs[best], told[best])
    merits = [_merit(edit, readings[best], quoted) for edit in left]
    among = [edit.source for edit, merit in zip(left, merits, strict=True) if merit == max(merits)]
    digest = hashlib.sha256(json.dumps([list(messages), seed]).encode()).digest()
    return _block(random.Random(digest).choice(among))


def _progress(readings: Sequence[Reading], number: int) -> tuple[int, float, int]:
    """Return the rank of a program: outcome, speed, and for one with an error the last line that the text names."""
    rank, speed = readings[number].rank
    return rank, speed, max(readings[number].lines, default=0) if rank == 0 else 0


def _quoted(program: str, text: str) -> frozenset[int]:
    """Return the lines of the program that the text quotes, with or without their number."""
    rows = {re.sub(r"^.*?(?:: |\| +)", "", " ".join(row.split())) for row in text.splitlines()}
    found = enumerate((" ".join(line.split()) for line in program.splitlines()), 1)
    return frozenset(number for number, line in found if len(line) > 8 and line in rows)


def _merit(edit: Edit, reading: Reading, quoted: frozenset[int]) -> float:
    """Return the points that a repair gets from the text."""
    merit = reading.points.get(edit.kind, 0.0)
    if reading.outcome == "CORRECT":
        return merit + (5 if edit.kind in _AGAINST_TIME else -5)
    if reading.outcome == "INCORRECT":
        merit += 2 * (edit.line in reading.places)
        return merit - (5 if edit.kind in _AGAINST_ERRORS or edit.kind in _AGAINST_TIME else 0)
    if reading.outcome in ("COMPILE_ERROR", "RUNTIME_ERROR"):
        merit -= 0 if edit.kind in _AGAINST_ERRORS else 5
        merit += 3 * (edit.line in reading.lines | quoted)
        merit += 4 * (edit.removed in reading.names) + 3 * (edit.added in reading.names)
    return merit


def _of_numbers(text: str, sizes: frozenset[int]) -> list[dict[str, float]]:
    """Return points for repairs from the numbers of a mismatch: how much is wrong, where, by how much, how often."""
    found: list[dict[str, float]] = []
    if share := re.search(r"(\d+) of (\d+) elements", text):
        wrong = int(share[1]) / max(int(share[2]), 1)
        if wrong < 0.1:
            found.append({"mask": 3, "grid": 3, "uninitialised": 1})
        elif wrong > 0.9:
            found.append({"parameters": 1, "axis": 1, "divisor": 1, "start": 1, "padding": 1})
    if place := re.search(r"at \[(\d+(?:, \d+)*)\]", text):
        at = [int(number) for number in place[1].split(",")]
        if all(number + 1 in sizes for number in at):  # the last element
            found.append({"mask": 3, "grid": 2})
    if ratio := re.search(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) times what is allowed", text):
        times = float(ratio[1])
        if times < 1e3:
            found.append({"precision": 2, "divisor": 2, "epsilon": 1, "padding": 1})
        elif times > 1e20:
            found.append({"uninitialised": 3, "grid": 2, "mask": 2})
        else:
            found.append({"parameters": 1, "axis": 1, "sign": 1, "start": 1})
    if re.search(r"[1-9]\d* of \d+ trials were right|trials? on usual inputs came out right", text):
        found.append({"overflow": 1, "epsilon": 1, "sign": 1, "axis": -2, "parameters": -2, "start": -1, "divisor": -1})
    return found


def _add(points: dict[str, float], repairs: Mapping[str, float]) -> None:
    for kind, value in repairs.items():
        points[kind] = points.get(kind, 0.0) + value


def _program(response: str) -> str:
    return extract(response, "Model").kernel_code


def _block(source: str) -> str:
    return f"```python\n{source.strip()}\n```\n"
