"""Run scripted nodes in a process of their own: `python -m kerneldyno.testing --scheduler HOST:PORT --nodes 50`.

Each node has its own connection. A line is printed when all have their Work stream; the process runs until it is killed.
Benchmarks of the scheduler and tests without an event loop use it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket

from kerneldyno.rpc import credentials
from kerneldyno.testing.scripted_node import ScriptedNode


async def _main(options: argparse.Namespace) -> None:
    many = options.nodes > 1
    nodes = [
        ScriptedNode(
            f"{options.node_id}-{index}" if many else options.node_id,
            lanes=options.lanes,
            devices=options.devices,
            kind=options.kind,
            model=options.model,
            labels=dict(label.split("=", 1) for label in options.label),
            mean_seconds=options.mean_seconds,
            spread=options.spread,
            credentials=credentials.choose(),
            kills_process=True,
        )
        for index in range(options.nodes)
    ]
    async with asyncio.TaskGroup() as group:
        for one in nodes:
            await one.listen()
            group.create_task(one.run(options.scheduler))
        for one in nodes:
            await one.at_work.wait()
        print(f"scripted-node ready nodes={len(nodes)} pid={os.getpid()}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kerneldyno.testing", description="Simulate evaluator nodes.")
    add = parser.add_argument
    add("--scheduler", required=True, metavar="HOST:PORT")
    add("--node-id", default=socket.gethostname()[:90], help="name; with several nodes, each adds its number")
    add("--nodes", type=int, default=1)
    add("--devices", type=int, default=1, help="devices of each node")
    add("--lanes", type=int, default=2, help="lanes of each device")
    add("--kind", default="cpu")
    add("--model", default="Fake CPU")
    add("--label", action="append", default=[], metavar="KEY=VALUE")
    add("--mean-seconds", type=float, default=0.0, help="duration of an attempt whose script has no `sleep`")
    add("--spread", type=float, default=0.0, help="0 to 1: how far durations differ from the mean, evenly distributed")
    return parser


if __name__ == "__main__":
    asyncio.run(_main(_parser().parse_args()))
