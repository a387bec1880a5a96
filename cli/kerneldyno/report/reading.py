"""Read the input of a report: a file of results or of trajectories, once and line by line.

A bad line does not prevent a report: it is left out, named and counted. A file that is neither kind, or both, is
refused.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final

from google.protobuf import json_format

from kerneldyno.client.problem_names import PROBLEM_LABEL
from kerneldyno.report import candidates
from kerneldyno.report.candidates import Candidate, positive
from kerneldyno.report.elapsed import span_of
from kerneldyno.report.shelf import Shelf
from kerneldyno.rewards.trajectories import TurnRecord, turn_of
from kerneldyno.rollout.recorded import light
from kerneldyno.rpc.input_files import MAX_LINE_BYTES, numbered_lines
from kerneldyno.rpc.jsonio import result_from_json

#: Most candidates; browsers would open a larger page too slowly.
MAX_CANDIDATES = 100_000
#: Longest file, in bytes, that is one document (`kerneldyno evaluations --json`) and must be read as a whole.
MAX_DOCUMENT_BYTES = 256 << 20
_NAMED_LINES = 3
#: Longest name of an outcome that is shown, in characters.
_OUTCOME_CHARS = 24
_GZIP = b"\x1f\x8b"
_NOT_SHOWN = ("accept_time", "finish_time", "profile", "device_state")

RESULTS: Final = "results"
TURNS: Final = "turns"


class ReportInputError(Exception):
    """The file cannot be reported on; the message says why and what to give instead."""


@dataclass(slots=True)
class Recorded:
    """The contents of a file."""

    #: RESULTS or TURNS; "" until the first line that is one.
    kind: str = ""
    candidates: list[Candidate] = field(default_factory=list)
    #: Every turn of trajectories without its large fields, including turns without a verdict.
    turns: list[TurnRecord] = field(default_factory=list)
    #: Defects of the file, in sentences.
    notes: list[str] = field(default_factory=list)


def read(
    stream: io.BufferedReader, shelf: Shelf, problem_label: str = PROBLEM_LABEL, group_label: str = ""
) -> Recorded:
    """Read results or trajectories, plain or compressed by gzip.

    Args:
        stream: the file.
        shelf: keeps the long texts.
        problem_label: label of results that names their problem.
        group_label: label of results that names the group of their problem; "" for none.

    Raises:
        ReportInputError: there are none, or both kinds, or too many.
        OSError: reading fails.
    """
    reader = _Reader(shelf, problem_label, group_label)
    try:
        reader.run(uncompressed(stream))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reader.recorded.notes.append(f"the compressed file ends early ({error}); what came before it is shown")
    return reader.finish()


def uncompressed(stream: io.BufferedReader) -> io.BufferedReader:
    """Return the uncompressed stream if the first bytes show gzip, else the stream itself."""
    if stream.peek(2)[:2] != _GZIP:
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))


class _Reader:
    """Read one file."""

    def __init__(self, shelf: Shelf, problem_label: str, group_label: str) -> None:
        self._shelf = shelf
        self._problem_label = problem_label
        self._group_label = group_label
        self._results: dict[str, Candidate] = {}
        self._turns: dict[tuple[str, int, int], tuple[TurnRecord, Candidate | None]] = {}
        self._lines = 0
        self._bad: list[str] = []
        self._repeated = self._unfinished = self._nameless = 0
        self.recorded = Recorded()

    def run(self, stream: IO[bytes]) -> None:
        for number, line in numbered_lines(stream):
            first, self._lines = not self._lines, self._lines + 1
            if (
                len(line) > MAX_LINE_BYTES and first and not line.lstrip().startswith(b"{")
            ):  # a sparse file or a disk image
                raise ReportInputError(f"holds neither results nor trajectories: {_too_long(number)}")
            elif len(line) > MAX_LINE_BYTES:
                self._bad.append(_too_long(number))
            elif first and (line.strip() == b"{" or line.startswith(b"[")):
                return self._document(line + stream.read(MAX_DOCUMENT_BYTES + 1))
            else:
                self._line(number, line)
        return None

    def finish(self) -> Recorded:
        """Return what was read, with notes on what was left out."""
        recorded = self.recorded
        if not recorded.kind:
            raise ReportInputError(self._nothing())
        if recorded.kind == RESULTS:
            recorded.candidates = list(self._results.values())
        else:
            recorded.turns = [turn for turn, _ in self._turns.values()]
            recorded.candidates = [candidate for _, candidate in self._turns.values() if candidate is not None]
            self._unfinished += sum(candidate is None for _, candidate in self._turns.values())
        if not recorded.candidates:
            raise ReportInputError(f"holds no verdict: none of its {self._lines} lines has an outcome")
        if self._bad:
            more = f"; and {len(self._bad) - _NAMED_LINES} more" if len(self._bad) > _NAMED_LINES else ""
            recorded.notes.append(
                f"{_count(len(self._bad), 'line')} left out: {'; '.join(self._bad[:_NAMED_LINES])}{more}"
            )
        if self._repeated and recorded.kind == RESULTS:
            recorded.notes.append(f"{_count(self._repeated, 'result')} have the id of a later one, which counts")
        if self._unfinished:
            recorded.notes.append(f"{self._unfinished} without a verdict yet are left out")
        return recorded

    def _nothing(self) -> str:
        if not self._lines:
            return "is empty: there is nothing to report on"
        return f"holds neither results nor trajectories: {self._bad[0] if self._bad else 'no verdicts'}"

    def _document(self, data: bytes) -> None:
        """Take the output of `kerneldyno evaluations --json` or `evaluate --json`."""
        if len(data) > MAX_DOCUMENT_BYTES:
            raise ReportInputError(
                f"is one JSON document, and longer than {MAX_DOCUMENT_BYTES >> 20} MiB: give JSON lines"
            )
        try:
            document = _parsed(data)
        except (ValueError, RecursionError) as error:
            raise ReportInputError(f"is neither JSON lines nor one JSON document: {error}") from error
        rows = document.get("evaluations", [document]) if isinstance(document, dict) else document
        for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
            if isinstance(row, dict) and "client_id" in row:  # an Evaluation, which has a result when it is done
                row = row.get("result")
                if row is None:
                    self._unfinished += 1
                    continue
            self._object(f"entry {number}", row)

    def _line(self, number: int, line: bytes) -> None:
        try:
            row = _parsed(line)
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                self._bad.append(f"line {number} is not JSON ({error})")
            else:
                self._bad.append(f"line {number}, the last, is cut off after {len(line)} bytes")
            return
        self._object(f"line {number}", row)

    def _object(self, where: str, row: Any) -> None:
        kind = _kind(row)
        if not kind:
            self._bad.append(f"{where} is neither a result (id, outcome) nor a turn (group, sample, turn_index)")
            return
        if self.recorded.kind and kind != self.recorded.kind:
            raise ReportInputError(
                f"{where} is one of {kind}, but earlier ones are {self.recorded.kind}: make a separate report of each kind"
            )
        self.recorded.kind = kind
        try:
            self._result(row) if kind == RESULTS else self._turn(row)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, json_format.Error) as error:
            self._bad.append(f"{where} is not a valid {kind[:-1]} ({' '.join(str(error).split())[:200]})")
        if len(self._results) + len(self._turns) > MAX_CANDIDATES:
            raise ReportInputError(
                f"more than {MAX_CANDIDATES} candidates: use a part of the file, for example `head -n {MAX_CANDIDATES}`"
            )

    def _result(self, row: dict[str, Any]) -> None:
        candidate = candidates.of_result(result_from_json(_shown(row)), self._shelf, self._problem_label)
        candidate.outcome = row["outcome"][:_OUTCOME_CHARS]  # possibly one that this release does not know
        self._add_what_is_read_apart(candidate, row)
        if not candidate.id:  # directly from EvaluateOnce, or a line of a batch that was not a request
            self._nameless += 1
            candidate.id = f"(no id, {self._nameless})"
        self._repeated += self._forget(self._results.get(candidate.id))
        self._results[candidate.id] = candidate

    def _turn(self, row: dict[str, Any]) -> None:
        turn = turn_of(row)
        whole = turn.result or {}
        turn = replace(
            turn,
            outcome=turn.outcome[:_OUTCOME_CHARS],
            result=_shown(turn.result or {}),
            speedup=positive(turn.speedup) or 0.0,
        )
        candidate = candidates.of_turn(turn, self._shelf) if turn.outcome else None
        if candidate is not None:
            self._add_what_is_read_apart(candidate, whole)
        place = turn.group, turn.sample, turn.turn_index
        if place in self._turns:  # its response was recorded first, or its run was repeated
            self._forget(self._turns[place][1])
        self._turns[place] = replace(light(turn), response="", feedback=""), candidate

    def _add_what_is_read_apart(self, candidate: Candidate, result: Mapping[str, Any]) -> None:
        candidate.span = span_of(result)
        if self._group_label:
            candidate.group = str((result.get("labels") or {}).get(self._group_label, ""))

    def _forget(self, candidate: Candidate | None) -> bool:
        for kept in candidate.kept() if candidate is not None else ():
            self._shelf.forget(kept)
        return candidate is not None


def _too_long(number: int) -> str:
    return f"line {number} is longer than {MAX_LINE_BYTES >> 20} MiB"


def _kind(row: Any) -> str:
    if not isinstance(row, dict):
        return ""
    if "turn_index" in row and "group" in row:
        return TURNS
    return RESULTS if isinstance(row.get("outcome"), str) and row["outcome"] else ""


def _parsed(data: bytes) -> Any:
    """Return the JSON in `data`. Numbers that JSON does not allow become null, as if their field were absent."""
    return json.loads(data, parse_constant=lambda _: None)


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without fields that reports do not show or that are read separately; times are slow to read."""
    kept = {name: value for name, value in result.items() if name not in _NOT_SHOWN}
    if isinstance(stages := kept.get("stages"), list):
        kept["stages"] = [{**stage, "start_time": None} for stage in stages]
    return kept


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
