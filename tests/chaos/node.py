"""A scripted node that writes history: the tokens of attempts that it started, finished, killed or had acknowledged.

cluster.py runs each node as a separate process (`python -m tests.chaos.node`), and stops and kills it. The message of
each result names the attempt that made it, so that any reader of an outcome can tell which attempt decided. The script
word `work=NAME` gives the name of the work in the history.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from kerneldyno.rpc import serving
from kerneldyno.testing.scripted_node import Held, ScriptedNode
from kerneldyno.v1.fleet_service_pb2 import Assignment
from tests.chaos.history import History


class ChaosNode(ScriptedNode):
    """A node of a cluster that gets faults."""

    history: History

    def _take(self, assignment: Assignment) -> None:
        token = assignment.attempt_token
        known = token in self.attempts
        super()._take(assignment)
        if not known and (held := self.attempts.get(token)) is not None:
            self._note("attempt", "invoke", held)
        elif not known:
            self.history.note("attempt", "info", token=token, refused=True)

    def _finish(self, held: Held) -> None:
        super()._finish(held)
        if held.result is not None:
            held.result.message = f"token={held.token} {held.result.message}"
            self._note("attempt", "ok", held)

    def _cancel(self, token: str) -> None:
        held = self.attempts.get(token)
        super()._cancel(token)
        if held is not None and held.result is None:
            self._note("attempt", "fail", held)

    def _acknowledge(self, token: str) -> None:
        super()._acknowledge(token)
        self.history.note("acknowledged", "ok", token=token)

    def _note(self, op: str, kind: str, held: Held) -> None:
        self.history.note(op, kind, token=held.token, work=held.script.get("work", held.name))


async def _main(options: argparse.Namespace) -> None:
    node = ChaosNode(
        options.node_id,
        lanes=options.lanes,
        devices=options.devices,
        mean_seconds=options.mean_seconds,
        spread=options.spread,
        kills_process=True,
    )
    with History(options.events, node=options.node_id, instance=node.instance_id) as node.history:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.create_task(_drain(node)))
        await node.listen()
        async with asyncio.TaskGroup() as group:
            group.create_task(node.run(options.scheduler))
            await node.at_work.wait()
            print(f"chaos-node ready node={options.node_id} grpc={node.address}", flush=True)


async def _drain(node: ChaosNode) -> None:
    """Do what an evaluator does at SIGTERM: take no new work, finish what runs, hand over every result, and exit."""
    node.draining = True
    node._news.set()
    parent = os.getppid()
    while node.attempts and os.getppid() == parent:  # noqa: ASYNC110 - nobody waits for a node that lost its suite
        await asyncio.sleep(0.02)
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--scheduler", required=True)
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--mean-seconds", type=float, default=0.02)
    parser.add_argument("--spread", type=float, default=0.0)
    serving.exit_with_parent()
    asyncio.run(_main(parser.parse_args()))
