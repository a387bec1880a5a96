"""The real scheduler with scripted nodes, as a trainer's test uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kerneldyno.client import AsyncClient, Client, EvalRequest, EvalResult, LocalServiceError, turn
from kerneldyno.testing import Cluster, ScriptedNode


def request(id: str, code: str) -> EvalRequest:
    return EvalRequest(id=id, reference_code="reference", kernel_code=code)


def test_turns_are_scored_without_asyncio() -> None:
    with Cluster() as cluster, Client(cluster.address) as client:
        turns = [turn("p", n, 0, reference_code="r", kernel_code=f"# speedup={n + 1}") for n in range(3)]
        assert {one.sample: one.reward for one in client.rewards(turns, "kevin")} == {0: 1.3, 1: 2.3, 2: 3.3}
        assert len(cluster.nodes[0].started) == 3


async def test_a_node_that_dies_loses_no_work() -> None:
    nodes = [ScriptedNode("n1"), ScriptedNode("n2")]
    async with Cluster(nodes) as cluster, AsyncClient(cluster.address) as client:
        codes = {"a": "die=1 node=n1 sleep=0.1", "b": "die=1 node=n1 sleep=0.1", "c": "x"}
        found = [result async for result in client.evaluate([request(*item) for item in codes.items()])]
    assert {result.id: result.outcome for result in found} == dict.fromkeys(codes, EvalResult.CORRECT)


async def test_a_scheduler_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    async with Cluster(store=store) as cluster, AsyncClient(cluster.address) as client:
        found = client.evaluate([request("a", "x"), request("b", "sleep=0.5")])
        assert (await anext(found)).id == "a"
        await cluster.kill_scheduler()
        await cluster.start_scheduler()
        assert [result.id async for result in found] == ["b"]
        assert len(cluster.nodes[0].started) == 2, "nothing ran twice"


async def test_a_scheduler_that_does_not_start_says_why() -> None:
    with pytest.raises(LocalServiceError, match="--colour"):
        async with Cluster(options=["--colour", "red"]):
            pass


def test_nodes_run_as_a_program_too() -> None:
    with Cluster([]) as cluster:
        command = [sys.executable, "-m", "kerneldyno.testing", "--scheduler", cluster.address, "--nodes", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline().startswith("scripted-node ready nodes=2")
                with Client(cluster.address) as client:
                    assert len(client.nodes()) == 2
            finally:
                program.kill()
