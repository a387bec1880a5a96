"""The results of `kerneldyno batch` and `suite`: a file of JSON Lines that a later run continues."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kerneldyno.client.jsonl import LINE_LABEL
from kerneldyno.rpc import identity
from kerneldyno.rpc.input_files import MAX_LINE_BYTES, numbered_lines
from kerneldyno.rpc.jsonio import result_to_json
from kerneldyno.rpc.output_files import OutputLock, append_whole
from kerneldyno.rpc.validation import effective
from kerneldyno.v1.evaluation_pb2 import SPEEDUP_KIND_UNSPECIFIED, EvalRequest, EvalResult, SpeedupKind

_UNMEASURED = SpeedupKind.Name(SPEEDUP_KIND_UNSPECIFIED)


class NotResultsError(Exception):
    """The output file holds something that is not a result, or is not a regular file that can be read again."""


@dataclass(frozen=True, slots=True)
class EarlierVerdict:
    """The part of an earlier run's result that is kept in memory."""

    #: Index of its line in the file, from 0; blank lines do not count.
    position: int
    outcome: str
    #: Identity of the work (kerneldyno.rpc.identity); empty in results of releases that did not write it.
    digest: bytes
    #: Which speedup counts; _UNMEASURED if there is none.
    speedup_kind: str
    #: An earlier run of the same work answered it.
    cached: bool

    def answers(self, request: EvalRequest) -> bool:
        """Return whether it is the verdict that `request` asks for. Without a digest it is assumed to be.

        Sources and settings are compared; labels, priority and the like do not change a verdict.

        Args:
            request: the request with the same id.
        """
        if self.digest and self.digest != _digest(request):
            return False
        asked = effective(request).speedup_kind
        if self.speedup_kind != _UNMEASURED and (self.speedup_kind, asked) not in SpeedupKind.items():
            return False
        return not (request.skip_cache and self.cached)


class ResultsFile:
    """The results of a run, in a file that no other run may write at the same time (see OutputLock).

    Opening it reads the verdicts of earlier runs. The first result that is appended removes from the file what will be
    evaluated again: results with outcome INFRASTRUCTURE_ERROR, results of malformed or refused requests, and a last
    line that an interrupted run left unfinished. An appended result replaces the earlier one of its id, whose line is
    removed when the file is closed. So a complete file has one line for each request, and no verdict is removed before
    its successor exists.

    Raises:
        NotResultsError: the file holds something else, or is not a regular file.
        OutputLockedError: another run is writing it.
        OSError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._given = path
        self._path = path.resolve()
        self._lock: OutputLock | None = None
        self._file = -1
        self._dropped: set[int] = set()
        #: Verdicts of earlier runs by id.
        self.earlier: dict[str, EarlierVerdict] = {}

    def __enter__(self) -> Self:
        if self._given.exists() and not self._given.is_file():
            if self._given.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self._given))
            raise NotResultsError(f"{self._given} is not a regular file; a run that continues must read it again")
        self._lock = OutputLock(self._path)
        try:
            self._read()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None or self._file >= 0:
                self.finish()
        finally:
            if self._lock is not None:
                self._lock.release()

    def append(self, result: EvalResult) -> None:
        """Write one whole line at once.

        Raises:
            OSError: the disk does not take it.
        """
        self._begin()
        append_whole(self._file, json.dumps(result_to_json(result)).encode() + b"\n")
        if LINE_LABEL not in result.labels:
            self.drop([result.id])

    def drop(self, ids: Collection[str]) -> None:
        """Remove the earlier verdicts of `ids`, when the first result is appended or at the end."""
        for id in ids:
            if (verdict := self.earlier.pop(id, None)) is not None:
                self._dropped.add(verdict.position)

    def finish(self) -> None:
        """Remove what was replaced. The file is complete then, and stays locked until the block ends."""
        self._begin()
        file, self._file = self._file, -1
        os.close(file)
        if self._dropped:
            self._rewrite()

    def _begin(self) -> None:
        """Open the file for appending, before the first result."""
        if self._file >= 0:
            return
        if self._dropped:
            self._rewrite()
            kept = enumerate(self.earlier.items())  # ordered by line
            self.earlier = {id: replace(verdict, position=position) for position, (id, verdict) in kept}
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as stream:
            for position, (number, line) in enumerate(numbered_lines(stream)):
                if (found := self._verdict(position, number, line)) is None:
                    self._dropped.add(position)
                    continue
                id, verdict = found
                if (repeated := self.earlier.pop(id, None)) is not None:  # of lines with the same id the last counts
                    self._dropped.add(repeated.position)
                self.earlier[id] = verdict

    def _verdict(self, position: int, number: int, line: bytes) -> tuple[str, EarlierVerdict] | None:
        """Return a line's id and verdict, or None if it is to be done again."""
        if not line.endswith(b"\n"):
            return None
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError("too long")
            data: Any = json.loads(line)
            id, outcome, labels = data["id"], data["outcome"], data.get("labels", {})
            EvalResult.Outcome.Value(outcome)
            hash(id)
            digest = bytes.fromhex(data.get("digest") or "")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise NotResultsError(f"line {number} of {self._given} is not a result of kerneldyno") from error
        refused = outcome == "INVALID" and (LINE_LABEL in labels or not digest)  # evaluating again costs nothing
        if outcome == "INFRASTRUCTURE_ERROR" or refused:
            return None
        kind = str(data.get("speedup_kind") or _UNMEASURED)
        return id, EarlierVerdict(position, outcome, digest, kind, data.get("cached") is True)

    def _rewrite(self) -> None:
        """Remove the dropped lines: a new file replaces the old one in one step."""
        kept = self._path.with_name(f".{self._path.name}.new")
        try:
            with self._path.open("rb") as old, kept.open("wb") as new:
                for position, (_, line) in enumerate(numbered_lines(old)):
                    if position not in self._dropped:
                        new.write(line)
                new.flush()
                os.fsync(new.fileno())
            shutil.copymode(self._path, kept)
            kept.replace(self._path)
        finally:
            kept.unlink(missing_ok=True)
        self._dropped.clear()


def _digest(request: EvalRequest) -> bytes:
    """Return the identity of the work; empty for a request that has none, because its durations are out of range."""
    try:
        return identity.digest(effective(request))
    except struct.error:
        return b""
