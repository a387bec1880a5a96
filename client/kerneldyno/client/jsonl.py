"""The files of `kerneldyno batch`: requests read line by line, results written line by line.

A line that is no request is not the end of a batch: it gets a result with outcome INVALID that names the line. Memory
does not grow with the files, except for the ids, which are needed to find duplicates and what is done already.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from kerneldyno.rpc.channel import MAX_MESSAGE_BYTES
from kerneldyno.rpc.jsonio import request_from_json, result_to_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult

#: A longer line cannot be a request that fits into a message.
MAX_LINE_BYTES = 2 * MAX_MESSAGE_BYTES
#: Label of the results of lines that are no requests; its value is the line's number.
LINE_LABEL = "kerneldyno.line"


class NotResultsError(Exception):
    """The output file holds something that is no result."""


class BadLine(ValueError):  # noqa: N818  (a value to turn into a result, not a failure of the program)
    """A line that is no request: its number, what is wrong, and its id if it has one."""

    def __init__(self, number: int, message: str, id: str = "") -> None:
        super().__init__(f"line {number}: {message}")
        self.number = number
        self.id = id

    def result(self) -> EvalResult:
        """The INVALID result of the line."""
        result = EvalResult(
            id=self.id, outcome=EvalResult.INVALID, compiled=False, correct=False, speedup=0.0, message=str(self)
        )
        result.labels[LINE_LABEL] = str(self.number)
        result.invalid.violations.add(field="", description=str(self))
        result.finish_time.GetCurrentTime()
        return result


def read_requests(stream: IO[bytes]) -> Iterator[EvalRequest | BadLine]:
    """Yields the request of each line, or what is wrong with it. Blank lines are skipped, an id counts once."""
    first_lines: dict[str, int] = {}
    for number, line in numbered_lines(stream):
        try:
            request = _parse(number, line)
            first = first_lines.setdefault(request.id, number)
            if first != number:
                raise BadLine(number, f"id {request.id!r} is already that of line {first}", request.id)
        except BadLine as bad:
            yield bad
        else:
            yield request


def numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that are not blank, with their numbers; of one longer than MAX_LINE_BYTES a little more than that."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        rest = line
        while not rest.endswith(b"\n") and (rest := stream.readline(MAX_LINE_BYTES)):
            line = line[:MAX_LINE_BYTES] + b"\n"  # now too long, whatever follows; the rest of the line is skipped
        if line.strip():
            yield number, line


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
        raise BadLine(number, "needs an id, a text that no other line has")
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


class ResultsFile:
    """The results of a batch. Opening it keeps the verdicts of earlier runs and drops what is to be done again.

    Dropped are results with outcome INFRASTRUCTURE_ERROR, results of malformed lines (the lines are read again), what
    `is_current` says no to (it is given the result's proto-JSON), and a last line that an interrupted run left unfinished.
    So a file that is complete has one line for each request.
    """

    def __init__(self, path: Path, is_current: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        self._path = path
        self._is_current = is_current
        self._stream: IO[bytes] | None = None
        #: Ids that have a verdict.
        self.done: set[str] = set()

    def __enter__(self) -> Self:
        if self._path.exists():
            self._take_over()
        self._stream = self._path.open("ab")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def append(self, result: EvalResult) -> None:
        """Writes one line, wholly, at once."""
        assert self._stream is not None
        self._stream.write(json.dumps(result_to_json(result)).encode() + b"\n")
        self._stream.flush()

    def _take_over(self) -> None:
        kept = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        changed = False
        try:
            with self._path.open("rb") as old, kept.open("wb") as new:
                for number, line in enumerate(old, start=1):
                    if self._keep(number, line):
                        new.write(line)
                    else:
                        changed = True
            if changed:
                kept.replace(self._path)
        finally:
            kept.unlink(missing_ok=True)

    def _keep(self, number: int, line: bytes) -> bool:
        if not line.endswith(b"\n"):
            return False
        try:
            data: Any = json.loads(line)
            id, outcome, labels = data["id"], data["outcome"], data.get("labels", {})
            EvalResult.Outcome.Value(outcome)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise NotResultsError(f"line {number} of {self._path} is not a result of kerneldyno") from error
        if outcome == "INFRASTRUCTURE_ERROR" or (outcome == "INVALID" and LINE_LABEL in labels):
            return False
        if not self._is_current(data):
            return False
        self.done.add(id)
        return True
