"""Columns of rows as arrays in PostgreSQL's binary format.

psycopg can send lists as well, but finds out the type of each list element by element, which costs the journal's thread more
time than all the rest of a small batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, ClassVar

from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from kerneldyno.scheduler.store.postgres.connection import PgConnection, escaped

_HEAD = Struct("!iiiii")  # dimensions, whether there are NULLs, type of the elements, their number, lower bound
_LENGTH, _INT4, _INT8, _FLOAT8 = Struct("!i"), Struct("!ii"), Struct("!iq"), Struct("!id")
_NULL = _LENGTH.pack(-1)
_FALSE, _TRUE = b"\0\0\0\1\0", b"\0\0\0\1\1"


class _Column:
    """The values of one column, None for NULL."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values


class _ColumnDumper(Dumper):
    format = Format.BINARY
    element_oid: ClassVar[int]
    element: ClassVar[Callable[[Any], bytes]]

    def dump(self, obj: _Column) -> Buffer | None:
        element, values = type(self).element, obj.values
        packed = [_NULL if value is None else element(value) for value in values]
        head = _HEAD.pack(1, None in values, self.element_oid, len(values), 1)
        return b"".join((head, *packed))


def _bytes(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _kind(name: str, array_oid: int, element_oid: int, element: Callable[[Any], bytes]) -> type[_Column]:
    column: type[_Column] = type(f"{name.title()}Column", (_Column,), {})
    fields = {"oid": array_oid, "element_oid": element_oid, "element": staticmethod(element)}
    _DUMPERS[column] = type(f"{name.title()}ColumnDumper", (_ColumnDumper,), fields)
    return column


_DUMPERS: dict[type[_Column], type[Dumper]] = {}
#: The kinds of columns, by the name of the type of their elements.
_KINDS: dict[str, type[_Column]] = {
    "bool": _kind("bool", 1000, 16, lambda value: _TRUE if value else _FALSE),
    "bytea": _kind("bytea", 1001, 17, _bytes),
    "int": _kind("int", 1007, 23, lambda value: _INT4.pack(4, value)),
    "bigint": _kind("bigint", 1016, 20, lambda value: _INT8.pack(8, value)),
    "text": _kind("text", 1009, 25, lambda value: _bytes(escaped(value).encode())),
    "float8": _kind("float8", 1022, 701, lambda value: _FLOAT8.pack(8, value)),
}


def column(kind: str, values: Sequence[Any]) -> object:
    """Return a parameter with `values` for a placeholder that is cast to an array of `kind`."""
    return _KINDS[kind](values)


def register(connection: PgConnection) -> None:
    """Let `connection` send columns."""
    for kind, dumper in _DUMPERS.items():
        connection.adapters.register_dumper(kind, dumper)
