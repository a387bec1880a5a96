"""`kerneldyno describe`: show what the service can do, its nodes and devices, and the sandbox around candidates."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.table import Table

from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import (
    Address,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    print_json,
    reporting,
    stdout,
    to_json,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient


def describe(
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Show limits, backends, nodes, devices and sandbox layers of a service."""
    with reporting():
        with Service(address, local, devices, sandbox, lanes).open() as reached:
            found = asyncio.run(_ask(reached))
        if as_json:
            print_json(found)
        else:
            _print(reached, found)


async def _ask(address: str) -> dict[str, Any]:
    async with AsyncClient(address) as client:
        capabilities, nodes = await client.capabilities(), await client.nodes()
    return {"scheduler": to_json(capabilities), "nodes": [to_json(node) for node in nodes]}


def _print(address: str, found: dict[str, Any]) -> None:
    console = stdout()
    scheduler = found["scheduler"]
    facts = Table.grid(padding=(0, 2))
    facts.add_row("scheduler", plain(f"{address}, version {scheduler['version']}"))
    facts.add_row("backends", plain(", ".join(scheduler["backends"]) or "none"))
    facts.add_row("toolkits", plain(", ".join(scheduler["toolkits"]) or "none"))
    facts.add_row("work", f"{scheduler['queued']} waiting, {scheduler['running']} running")
    if scheduler["journal_stalled"]:
        facts.add_row("journal", plain(f"STALLED, no verdict is told: {scheduler['journal_stalled']}"))
    console.print(facts)
    if not found["nodes"]:
        console.print("\nNo evaluator is registered: start one with `python -m kerneldyno.evaluator --scheduler ...`.")
    for node in found["nodes"]:
        console.print()
        console.print(_node(node))


def _node(node: dict[str, Any]) -> Table:
    state = node["state"].removeprefix("NODE_STATE_").lower()
    table = Table.grid(padding=(0, 2))
    table.add_row("node", plain(f"{node['node_id']} at {node['address']}, {state}, {node['running']} running"))
    for device in node["devices"]:
        memory = f"{int(device['memory_bytes']) / 2**30:.1f} GiB"
        readiness = "ready" if device["ready"] else "not ready"
        table.add_row(
            "  device", plain(f"{device['name']}: {device['model']}, {memory}, {device['lanes']} lanes, {readiness}")
        )
    if not node["sandbox_layers"]:
        table.add_row("  sandbox", "unknown, its evaluator is older than this and does not tell")
    for layer in node["sandbox_layers"]:
        mark = "active" if layer["active"] else "NOT ACTIVE"
        table.add_row("  sandbox", plain(f"{layer['name']}: {mark}; {layer['detail']}"))
    return table
