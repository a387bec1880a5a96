"""`kerneldyno quarantines` and `release`: list nodes and work that may not run, and let them run again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import (
    NO_VERDICT,
    Address,
    Json,
    UsageError,
    clock_time,
    fail,
    print_json,
    reporting,
    stdout,
    to_json,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.v1.fleet_service_pb2 import Quarantine

#: Characters of a digest that are shown, and the fewest that identify one.
_SHOWN, _FEWEST = 16, 6


def quarantines(address: Address = DEFAULT_ADDRESS, as_json: Json = False) -> None:
    """List nodes and work in quarantine.

    Nodes that kept failing get one attempt now and then, until one succeeds; work that kept killing nodes waits.
    """
    with reporting():
        found = asyncio.run(_list(address))
        if as_json:
            print_json({"quarantines": [to_json(one) for one in found]})
        elif found:
            stdout().print(_table(found))
        else:
            print("Nothing is in quarantine.")


def release(
    target: Annotated[
        str, typer.Argument(metavar="NODE|DIGEST", help=f"As listed; {_FEWEST} or more digits of a digest are enough.")
    ],
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Let a node or work in quarantine run again at once."""
    with reporting():
        released = asyncio.run(_release(address, target))
        if as_json:
            print_json({"released": to_json(released)})
        else:
            what = f"node {released.node_id}" if released.node_id else f"work {released.digest}"
            stdout().print(plain(f"released {what}"), soft_wrap=True)


async def _list(address: str) -> list[Quarantine]:
    async with AsyncClient(address) as client:
        return await client.quarantines()


async def _release(address: str, target: str) -> Quarantine:
    async with AsyncClient(address) as client:
        chosen = _choose(await client.quarantines(), target)
        await client.release(node_id=chosen.node_id, digest=chosen.digest)
        return chosen


def _choose(found: Sequence[Quarantine], target: str) -> Quarantine:
    """Return the quarantine of the node, or else of the work, that `target` names."""
    for one in found:
        if one.node_id and one.node_id == target:
            return one
    prefix = target.lower()
    matching = [one for one in found if len(prefix) >= _FEWEST and one.digest.startswith(prefix)]
    if len(matching) > 1:
        raise UsageError(f"{target}: {len(matching)} digests begin with this; give more of it")
    if not matching:
        fail(f"{target} is not in quarantine; `kerneldyno quarantines` lists what is", NO_VERDICT)
    return matching[0]


def _table(found: Sequence[Quarantine]) -> Table:
    table = Table(show_edge=False)
    for heading in ("what", "since", "until", "why"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            plain(f"node {one.node_id}" if one.node_id else f"work {one.digest[:_SHOWN]}"),
            clock_time(one.start_time),
            clock_time(one.end_time),
            plain(" ".join(one.reason.split())),
        )
    return table
