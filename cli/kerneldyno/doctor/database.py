"""Check of a scheduler's store in PostgreSQL: what a failover would lose, and who is active. For `kerneldyno doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from kerneldyno.doctor.checks import Check, State

#: Time limit in seconds of the program that looks.
_SECONDS = 15.0
#: Seconds of one round trip above which acceptances become slow: each waits for a few.
_SLOW_ROUND_TRIP = 0.01
_NAME = "journal"


def database(store: str) -> Iterator[Check]:
    """Yield a finding on the database at the URL `store`."""
    command = [sys.executable, "-m", "kerneldyno.scheduler.store_tool", "check"]
    try:
        done = subprocess.run(command, input=store, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        yield Check(_NAME, State.FAILED, f"PostgreSQL: no answer within {_SECONDS:g} s", "is the database reachable?")
        return
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or "the check failed"
        remedy = "check address, name and password of the database, and that it runs"
        if "kerneldyno[postgres]" in said:
            remedy = "pip install 'kerneldyno[postgres]'"
        yield Check(_NAME, State.FAILED, said, remedy)
        return
    yield _finding(json.loads(done.stdout))


def _finding(found: dict[str, Any]) -> Check:
    active = f"active: {found['serving']}" if found["serving"] else "no scheduler is active"
    text = (
        f"{found['name']}: PostgreSQL {found['server']}, a round trip takes {found['round_trip_seconds'] * 1e3:.1f} ms,"
        f" {active}; a failover would lose {found['risk']}"
    )
    if found["note"]:
        text += f"; {found['note']}"
    if found["schema_needed"] > found["schema_known"]:
        newer = f"{text}; its tables are of a newer KernelDyno (schema {found['schema']})"
        return Check(_NAME, State.FAILED, newer, "run that version here")
    if not found["fsync"] or not found["full_page_writes"]:
        return Check(_NAME, State.FAILED, text, "set fsync and full_page_writes to on in postgresql.conf")
    if found["synchronous_standby_names"] and found["synchronous"] == 0:
        return Check(_NAME, State.FAILED, text, "start the synchronous standby: until then no commit ends")
    if not found["safe"]:
        remedy = (
            "set synchronous_standby_names, for example 'ANY 1 (a, b)', if the loss of one machine must lose nothing"
        )
        return Check(_NAME, State.NOTE, text, remedy)
    if found["round_trip_seconds"] > _SLOW_ROUND_TRIP:
        return Check(
            _NAME, State.NOTE, text, "put the database nearer: each acceptance and result waits for a few of them"
        )
    return Check(_NAME, State.OK, text)
