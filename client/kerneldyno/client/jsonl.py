"""Requests as JSON Lines: the input of `kerneldyno batch`, read line by line.

A line that is not a request does not end a batch: it gets a result with outcome INVALID that names the line. Memory
does not grow with the files, except for the ids, which are kept to find duplicates and finished work.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from kerneldyno.rpc.input_files import MAX_LINE_BYTES, numbered_lines
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult

#: Label of the results of lines that are not requests; its value is the line's number.
LINE_LABEL = "kerneldyno.line"
#: Number of lines that are examined before a file is refused.
_BEGINNING_LINES = 1000
#: Length of the part of a line that a message quotes.
_SHOWN_BYTES = 60


class NotRequestsError(Exception):
    """The beginning of a file is not JSON Lines; the message says what it looks like."""


class BadLine(ValueError):  # noqa: N818  (a value to turn into a result, not a failure of the program)
    """A line that is not a request: its number, what is wrong, and its id if it has one."""

    def __init__(self, number: int, message: str, id: str = "") -> None:
        super().__init__(f"line {number}: {message}")
        self.number = number
        self.id = id

    def result(self) -> EvalResult:
        """Return the INVALID result of the line."""
        result = EvalResult(
            id=self.id, outcome=EvalResult.INVALID, compiled=False, correct=False, speedup=0.0, message=str(self)
        )
        result.labels[LINE_LABEL] = str(self.number)
        result.invalid.violations.add(field="", description=str(self))
        result.finish_time.GetCurrentTime()
        return result


def read_requests(stream: IO[bytes]) -> Iterator[EvalRequest | BadLine]:
    """Yield the request of each line, or what is wrong with it. Blank lines are skipped; a repeated id is an error."""
    yield from _requests(numbered_lines(stream))


def read_tasks(stream: IO[bytes]) -> Iterator[EvalRequest | BadLine]:
    """Read requests as `read_requests` does, but check the beginning before returning.

    Raises:
        NotRequestsError: the file begins with many lines, or has only lines, that do not start as a JSON object.
        OSError: reading fails.
    """
    lines = numbered_lines(stream)
    beginning: list[tuple[int, bytes]] = []
    for number, line in lines:
        beginning.append((number, line))
        if _begins_an_object(line):
            break
        if len(beginning) == _BEGINNING_LINES or len(line) > MAX_LINE_BYTES:
            raise NotRequestsError(_what_it_is([line for _, line in beginning]))
    else:
        if beginning:
            raise NotRequestsError(_what_it_is([line for _, line in beginning]))
    return _requests(itertools.chain(beginning, lines))


def _requests(lines: Iterable[tuple[int, bytes]]) -> Iterator[EvalRequest | BadLine]:
    first_lines: dict[str, int] = {}
    for number, line in lines:
        try:
            request = _parse(number, line)
            first = first_lines.setdefault(request.id, number)
            if first != number:
                raise BadLine(number, f"id {request.id!r} is already used by line {first}", request.id)
        except BadLine as bad:
            yield bad
        else:
            yield request


def _begins_an_object(line: bytes) -> bool:
    text = line.removeprefix(codecs.BOM_UTF8).strip()
    return text.startswith(b"{") and text != b"{"


def _what_it_is(lines: Sequence[bytes]) -> str:
    """Return what a file is whose first lines are not JSON objects."""
    first = lines[0].strip()
    if len(lines[0]) > MAX_LINE_BYTES:
        return f"this is not JSON Lines: its first line is longer than {MAX_LINE_BYTES} bytes"
    if first.startswith((b"[", b"{")):
        return "this is one JSON document, not JSON Lines: write one object per line, for example with `jq -c '.[]'`"
    if any(line.startswith((b"import ", b"from ", b"class ", b"def ")) for line in lines):
        return "this is Python code, not JSON Lines; use `kerneldyno evaluate REFERENCE.py CANDIDATE.py`"
    shown = first[:_SHOWN_BYTES].decode(errors="replace")
    return f"this is not JSON Lines: give one JSON object, a request, per line; its first line is {shown!r}"


def _parse(number: int, line: bytes) -> EvalRequest:
    if len(line) > MAX_LINE_BYTES:
        raise BadLine(number, f"longer than {MAX_LINE_BYTES} bytes")
    try:
        data = json.loads(line)
    except UnicodeDecodeError as error:
        raise BadLine(number, "not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise BadLine(number, f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadLine(number, f"not a JSON object but a {type(data).__name__}")
    id = data.get("id")
    id = id if isinstance(id, str) and _encodable(id) else ""
    if not id:
        raise BadLine(number, "needs an id: a text that no other line has")
    try:
        return request_from_json(data)
    except (ValueError, RecursionError) as error:
        raise BadLine(number, str(error), id) from error


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        return False
    return True
