"""What happened in a run, as an append-only log: one JSON line for each event, written by every process that takes part.

Each operation is `invoke`d, and ends in `ok` (it happened), `fail` (it did not) or `info` (nobody can tell). Times are those
of the machine's monotonic clock, so that events of different processes can be put in order. Who notes what:

    clients   submit invoke    id, work, expect, fresh        the request is handed to the client library
              submit ok        id, stream                     "accepted" came
              submit fail      id, code                       it was refused
              state ok         id, reader, since, accepted, known, attempts      it has no result yet, or is not known
              result ok        id, reader, since, accepted, outcome, token, attempts, cached, merged, seen, listing
              read fail        id, reader, code               a read, or a stream, ended in an error
              stream info/ok   number                         a new stream was needed / it was heard on
    nodes     attempt invoke   token, work                    a candidate starts to run
              attempt ok       token, work, outcome           it ended, and the result is kept until acknowledged
              attempt fail     token, work                    the scheduler had it killed
              acknowledged ok  token
    the suite fault info       what, target

`client` is in every event of a client, `node` and `instance` in every event of a node. `since` is when the read began (for a
stream: when it was opened), `seen` a digest of the whole result, `token` the attempt that the node wrote into it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    at: float
    op: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The field, or `default`."""
        return self.fields.get(name, default)

    def line(self) -> str:
        """As it is written."""
        return json.dumps({"at": self.at, "op": self.op, "kind": self.kind, **self.fields}, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> Event:
        """Read a line back."""
        fields = json.loads(line)
        return cls(fields.pop("at"), fields.pop("op"), fields.pop("kind"), fields)


class History:
    """Writes events to a file that others may write to as well; what was noted survives a SIGKILL of the writer."""

    def __init__(self, path: Path, **common: Any) -> None:
        self.path = path
        self._common = common
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def note(self, op: str, kind: str, **fields: Any) -> float:
        """Append one event, and return its time."""
        event = Event(time.monotonic(), op, kind, {**self._common, **fields})
        os.write(self._file, (event.line() + "\n").encode())  # one write: lines of several processes do not mix
        return event.at


def read(paths: Iterable[Path]) -> list[Event]:
    """Read the events of all `paths` in the order of time. A last line that was cut short is left out."""
    events = []
    for path in paths:
        *lines, _unfinished = path.read_text().split("\n")
        events += [Event.parse(line) for line in lines]
    return sorted(events, key=lambda event: event.at)
