"""Tools for stores, as a program: `python -m kerneldyno.scheduler.store_tool copy` and `check`.

The stores are lines on standard input, because a URL may have a password, and everybody on the machine can read command
lines. `copy` reads two, FROM and TO, and prints how many rows it copied. `check` reads one, and prints what it found as
JSON. `kerneldyno store copy` and `kerneldyno doctor` call this program: they have no parts of the scheduler of their own.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from kerneldyno.scheduler.core.ports import StoreError
from kerneldyno.scheduler.settings import Settings
from kerneldyno.scheduler.shared import require_driver

#: Lease in seconds with which `check` looks at the database; it takes nothing.
_LEASE_SECONDS = 5.0


def main() -> int:
    """Run the tool and return its exit status."""
    task, stores = " ".join(sys.argv[1:]), sys.stdin.read().split()
    try:
        if task == "copy" and len(stores) == 2:
            counts = copy(Settings(store=stores[0]), Settings(store=stores[1]))
            print(", ".join(f"{number} {table.replace('_', ' ')}" for table, number in counts.items()))
        elif task == "check" and len(stores) == 1:
            print(json.dumps(check(Settings(store=stores[0]))))
        else:
            print("usage: store_tool copy | check, with the stores on standard input", file=sys.stderr)
            return 2
    except (StoreError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def copy(source: Settings, target: Settings) -> dict[str, int]:
    """Copy one store into another, empty one, and return the number of rows of each table.

    Raises:
        StoreError, OSError: A store cannot be used.
        ValueError: Not one of them is a SQLite file and the other one in PostgreSQL.
    """
    kinds = {source.store.partition(":")[0], target.store.partition(":")[0]}
    if source.shared == target.shared or "sqlite" not in kinds:
        raise ValueError("one of the stores must be sqlite:PATH, and the other one postgresql://...")
    require_driver()
    from kerneldyno.scheduler.store.postgres import copying

    if target.shared:
        return copying.into_postgres(Path(source.store.removeprefix("sqlite:")), target.store, target.store_name)
    return copying.into_sqlite(source.store, source.store_name, Path(target.store.removeprefix("sqlite:")))


def check(settings: Settings) -> dict[str, object]:
    """Return what is to be known of a database before a scheduler uses it. It changes nothing.

    Raises:
        StoreError, OSError: The database cannot be used.
    """
    require_driver()
    import psycopg

    from kerneldyno.scheduler.store.postgres import durability, migrations
    from kerneldyno.scheduler.store.postgres.connection import connect, plain
    from kerneldyno.scheduler.store.postgres.role import RoleRows

    try:
        with connect(settings.store, name="kerneldyno doctor", limit_seconds=_LEASE_SECONDS) as connection:
            version, needed = migrations.version(connection)
            found = durability.look(connection)
            began = time.monotonic()
            connection.execute("SELECT 1")
            round_trip = time.monotonic() - began
            server = connection.info.server_version
    except psycopg.Error as error:
        raise StoreError(f"{settings.store_name}: {plain(error)}") from error
    serving = None
    if version:
        rows = RoleRows(settings.store, "doctor", "", _LEASE_SECONDS)
        try:
            claim = rows.read()
        finally:
            rows.close()
        serving = None if claim.released else claim.address or "a scheduler without --advertise"
    return {
        **asdict(found),
        "safe": found.safe,
        "risk": found.risk,
        "note": found.note,
        "name": settings.store_name,
        "server": server // 10_000,
        "schema": version,
        "schema_needed": needed,
        "schema_known": migrations.VERSION,
        "round_trip_seconds": round_trip,
        "serving": serving,
    }


if __name__ == "__main__":
    sys.exit(main())
