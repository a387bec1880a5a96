"""The history of a run: an append-only log with one JSON line for each event. Clients, nodes and the suite write to it.

Each operation begins with `invoke`, and ends with `ok` (it happened), `fail` (it did not) or `info` (unknown). Times
come from the machine's monotonic clock, so that events of different processes can be put in order. The events are:

    clients   submit invoke    id, work, expect, fresh        the client library gets the request
              submit ok        id, stream                     the scheduler accepted it
              state ok         id, reader, since, accepted, known, attempts      it has no result yet, or is not known
              result ok        id, reader, since, accepted, outcome, cause, token, attempts, cached, merged, seen,
                               stream or listing              a reader saw the result
              read fail        reader, code, detail           a read, or a stream, ended in an error
              stream info/ok   number                         the client opened a new stream / got its first message
    nodes     attempt invoke   token, work                    the node accepts the attempt
              attempt ok       token, work                    it ended; the node keeps the result for now
              attempt fail     token, work                    the scheduler had it killed
              attempt info     token, refused                 the node refused it
              acknowledged ok  token
    the suite fault info       what, target

`client` is in every event of a client, `node` and `instance` in every event of a node. `since` is the time when the
read began (for a stream: when it was opened). `seen` is a digest of the whole result. `token` is the attempt that the
node wrote into it.
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
    """One event: a line of the log."""

    at: float
    op: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field, or `default`."""
        return self.fields.get(name, default)

    def line(self) -> str:
        """Return the event as JSON text on one line."""
        return json.dumps({"at": self.at, "op": self.op, "kind": self.kind, **self.fields}, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> Event:
        """Return the event of a line."""
        fields = json.loads(line)
        return cls(fields.pop("at"), fields.pop("op"), fields.pop("kind"), fields)


class History:
    """A writer of events. Other processes may write to the same file. Noted events survive a SIGKILL of the writer."""

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
        """Append one event; return its time."""
        event = Event(time.monotonic(), op, kind, {**self._common, **fields})
        os.write(self._file, (event.line() + "\n").encode())  # one write: lines of several processes do not mix
        return event.at


def read(paths: Iterable[Path]) -> list[Event]:
    """Return the events of all `paths` in the order of time, without a last line that was cut short."""
    events = []
    for path in paths:
        *lines, _unfinished = path.read_text().split("\n")
        events += [Event.parse(line) for line in lines]
    return sorted(events, key=lambda event: event.at)
