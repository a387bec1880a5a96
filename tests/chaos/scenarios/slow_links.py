"""Row 11: a network with high latency, jitter and little bandwidth, first to the client, then to the nodes."""

from __future__ import annotations

from kerneldyno.v1.evaluation_pb2 import EvalRequest
from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.proxy import Link, Proxy
from tests.chaos.scenario import Figure, Plan, at_least, audit_all, exactly, kept, run_clients

ROWS = (11,)
TITLE = "200 ± 50 ms of latency, 64 kB/s, and messages in slices"
SLOW = Link(
    latency_seconds=0.2, jitter_seconds=0.05, bytes_per_second=64_000, slice_bytes=700, slice_pause_seconds=0.002
)
NODES, LANES = 4, 4


async def run(plan: Plan) -> list[Figure]:
    """Run the same work over plain and slow links. Attempts take 1 s, to keep lanes busy during a round trip."""
    count = plan.count(320, 48)
    seconds = {}
    plain = plan.directory / "plain"
    plain.mkdir()
    async with Cluster(plain, nodes=NODES, lanes=LANES, seed=plan.seed) as cluster:
        for name in ("warm", "plain"):
            seconds[name] = await run_clients(cluster, {name: _load(name, count)}, limit_seconds=300)
        async with Proxy(cluster.address, link=SLOW, seed=plan.seed) as proxy:
            load = {"slow": _load("slow", count)}
            seconds["client"] = await run_clients(cluster, load, limit_seconds=300, address=proxy.address)
        events = await audit_all(cluster)
    slow = plan.directory / "slow"
    slow.mkdir()
    async with Cluster(slow, nodes=NODES, lanes=LANES, seed=plan.seed, proxied=True) as cluster:
        for proxy in cluster.proxies.values():
            proxy.link = SLOW
        seconds["nodes"] = await run_clients(cluster, {"far": _load("far", count)}, limit_seconds=300)
        far = await audit_all(cluster)
    errors = [e for e in (*events, *far) if e.op == "read" and e.kind == "fail"]
    return [
        at_least(
            11, "1", "throughput with slow links to the client", 100 * seconds["plain"] / seconds["client"], 60, "%"
        ),
        at_least(
            11, "1", "throughput with slow links to the nodes", 100 * seconds["plain"] / seconds["nodes"], 60, "%"
        ),
        exactly(11, "1", "errors", len(errors), 0),
        *kept(11, "1 3", events),
        *kept(11, "1 3", far),
    ]


def _load(name: str, count: int) -> list[EvalRequest]:
    return [request(f"{name}{i}", f"{name}{i}", seconds=1.0) for i in range(count)]
