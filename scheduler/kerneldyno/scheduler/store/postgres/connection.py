"""Connections to PostgreSQL whose every operation has a time limit, and text that may contain NUL.

libpq notices a dead network, but not a server that accepts a query and never answers. These connections wait for no answer
longer than their limit; then they are closed, and the operation fails.
"""

from __future__ import annotations

import re
import select
from typing import Any, TypeVar, cast

import psycopg
from psycopg.abc import Buffer, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import StrBinaryDumper, StrDumper, StrDumperUnknown, TextLoader
from psycopg.waiting import Ready, Wait

from kerneldyno.scheduler.clock import SystemClock

#: Seconds that one attempt to connect may take.
CONNECT_SECONDS = 3
_POLL_MASKS = {Wait.R: select.POLLIN, Wait.W: select.POLLOUT, Wait.RW: select.POLLIN | select.POLLOUT}
#: How often one wait writes without asking whether it can: what sending one statement of a pipeline needs.
_WRITES_WITHOUT_POLL = 2
_clock = SystemClock()
Result = TypeVar("Result")


class PgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection in autocommit mode. Use it in one thread at a time."""

    limit_seconds = 10.0
    """Time limit of each wait for the server."""

    def wait(self, gen: PQGen[Result], interval: float = 0.0) -> Result:
        """Run a generator of psycopg to its end, for at most `limit_seconds`.

        Raises:
            OperationalError: The server did not answer in time. The connection is closed.
        """
        end = _clock.monotonic() + self.limit_seconds
        poll = select.poll()
        fileno = self.pgconn.socket
        try:
            state = next(gen)
            # A socket is nearly always writable, and libpq keeps what it cannot send. To poll would release the interpreter
            # lock, which may take milliseconds to get back from a busy event loop.
            for _ in range(_WRITES_WITHOUT_POLL):
                if state not in (Wait.W, Wait.RW):
                    break
                state = gen.send(Ready.W)
            poll.register(fileno, _POLL_MASKS[state])
            while True:
                events = poll.poll(max(0.0, end - _clock.monotonic()) * 1000)
                if not events:
                    gen.close()
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"PostgreSQL did not answer within {self.limit_seconds:g} s")
                event = events[0][1]
                ready = (Ready.R if event & ~select.POLLOUT else 0) | (Ready.W if event & select.POLLOUT else 0)
                state = gen.send(Ready(ready))
                poll.modify(fileno, _POLL_MASKS[state])
        except StopIteration as done:
            return cast(Result, done.value)


def connect(url: str, *, name: str, limit_seconds: float, settings: dict[str, str] | None = None) -> PgConnection:
    """Open a connection.

    Args:
        url: A URL (postgresql://...) of the database.
        name: The name of the connection in pg_stat_activity.
        limit_seconds: Time limit of each wait for the server.
        settings: Values of run-time parameters of the session.

    Raises:
        psycopg.Error: There is no server, or it refuses.
    """
    given = conninfo_to_dict(url)
    extra = " ".join(f"-c {key}={_option(value)}" for key, value in (settings or {}).items())
    parameters: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": int(limit_seconds * 1000),
        "target_session_attrs": "primary",  # of several hosts; a replica could neither write nor read its own writes
        **given,
        "application_name": name,
        "client_encoding": "UTF8",
        "options": f"{given.get('options') or ''} {extra}".strip(),
    }
    connection = PgConnection.connect(autocommit=True, prepare_threshold=1, **parameters)
    connection.limit_seconds = limit_seconds
    for dumper in (_BinaryDumper, _TextDumper, _UnknownDumper):
        connection.adapters.register_dumper(str, dumper)
    connection.adapters.register_loader("text", _Loader)
    return connection


def plain(error: BaseException) -> str:
    """Return the message of an error of psycopg on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _option(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


# PostgreSQL's text has no NUL. Two characters are replaced by two others, each by itself, so order and prefixes stay.

_ESCAPES = {"\x00": "\x01\x01", "\x01": "\x01\x02"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}
_RARE = re.compile("[\x00\x01]")
_ESCAPED = re.compile("\x01[\x01\x02]")


def escaped(text: str) -> str:
    """Return `text` as it is stored."""
    return _RARE.sub(lambda found: _ESCAPES[found[0]], text) if _RARE.search(text) else text


class _BinaryDumper(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextDumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _UnknownDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _Loader(TextLoader):
    def load(self, data: Buffer) -> bytes | str:
        text = bytes(data).decode()
        return _ESCAPED.sub(lambda found: _CHARACTERS[found[0]], text) if "\x01" in text else text
