"""`kerneldyno nodes`, `drain` and `undrain`: show the nodes that the scheduler knows, and which of them accept work."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import (
    NO_VERDICT,
    Address,
    Json,
    clock_time,
    fail,
    print_json,
    reporting,
    stdout,
    to_json,
    waiting,
)
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.v1 import fleet_service_pb2 as pb

NodeId = Annotated[str, typer.Argument(metavar="NODE", help="Id of the node; `kerneldyno nodes` lists them.")]

_COLOURS = {
    pb.NODE_STATE_SERVING: "green",
    pb.NODE_STATE_DRAINING: "yellow",
    pb.NODE_STATE_QUARANTINED: "red",
    pb.NODE_STATE_LOST: "red",
}


def nodes(address: Address = DEFAULT_ADDRESS, as_json: Json = False) -> None:
    """List the nodes: state, devices, labels."""
    with reporting():
        found = asyncio.run(_list(address))
        if as_json:
            print_json({"nodes": [to_json(node) for node in found]})
        elif found:
            stdout().print(_table(found))
        else:
            print("No evaluator is registered: start one with `python -m kerneldyno.evaluator --scheduler ...`.")


def drain(
    node_id: NodeId,
    wait: Annotated[bool, typer.Option("--wait", help="Return only when nothing is running there any more.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Give NODE no more work, until undrain.

    Running evaluations finish. The node stays drained when it, or the scheduler, is restarted.
    """
    with reporting():
        node = asyncio.run(_drain(address, node_id, wait))
        _report(node, as_json)


def undrain(node_id: NodeId, address: Address = DEFAULT_ADDRESS, as_json: Json = False) -> None:
    """Let a drained NODE accept work again."""
    with reporting():
        node = asyncio.run(_undrain(address, node_id))
        _report(node, as_json)


async def _list(address: str) -> list[pb.Node]:
    async with AsyncClient(address) as client:
        return await client.nodes()


async def _drain(address: str, node_id: str, wait: bool) -> pb.Node:
    async with AsyncClient(address) as client:
        node = await client.drain(node_id)
        if not (wait and node.running):
            return node
        async with aclosing(client.watch()) as snapshots:
            with waiting(f"waiting for what runs on {node_id}"):
                async for snapshot in snapshots:
                    now = next((one for one in snapshot.nodes if one.node_id == node_id), None)
                    if now is None:  # the scheduler has restarted, and the node has not registered again yet
                        fail(f"the scheduler no longer knows {node_id}; check that it is still running", NO_VERDICT)
                    if not now.drained:
                        fail(f"{node_id} was undrained by another user meanwhile", NO_VERDICT)
                    if not now.running:
                        return now
    raise AssertionError("a watch does not end by itself")


async def _undrain(address: str, node_id: str) -> pb.Node:
    async with AsyncClient(address) as client:
        return await client.undrain(node_id)


def _report(node: pb.Node, as_json: bool) -> None:
    if as_json:
        print_json({"node": to_json(node)})
    else:
        stdout().print(plain(f"{node.node_id}: {_state(node)}, {node.running} running"), soft_wrap=True)


def _table(found: list[pb.Node]) -> Table:
    table = Table(show_edge=False)
    for heading in ("node", "state", "devices", "running", "labels", "last heard of"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "running" else "left")
    for node in found:
        table.add_row(
            plain(node.node_id),
            Text(_state(node), style=_COLOURS.get(node.state, "")),
            plain(_devices(node)),
            str(node.running),
            plain(", ".join(f"{key}={value}" for key, value in sorted(node.labels.items()))),
            clock_time(node.last_synchronize_time),
        )
    return table


def _state(node: pb.Node) -> str:
    """Return in a few words what a node is doing."""
    if node.state == pb.NODE_STATE_DRAINING:
        return ("draining" if node.running else "drained") if node.drained else "stopping"
    words = [pb.NodeState.Name(node.state).removeprefix("NODE_STATE_").lower()]
    if node.state == pb.NODE_STATE_QUARANTINED:
        words.append(f"{node.failures} failures in a row")
    if node.drained:
        words.append("drained")
    if not node.connected and node.state != pb.NODE_STATE_LOST:
        words.append("not connected")
    return ", ".join(words)


def _devices(node: pb.Node) -> str:
    kinds = Counter(device.model for device in node.devices)
    idle = sum(not device.ready for device in node.devices)
    return ", ".join(f"{count} x {model}" for model, count in kinds.items()) + (f" ({idle} not ready)" if idle else "")
