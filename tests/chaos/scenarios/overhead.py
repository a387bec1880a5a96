"""Row 24: the time that the scheduler adds on an idle system."""

from __future__ import annotations

from tests.chaos.clients import request
from tests.chaos.cluster import Cluster
from tests.chaos.scenario import Figure, Plan, at_most, audit_all, kept, of_kind, percentile, run_clients

ROWS = (24,)
TITLE = "Dispatch on an idle system"


async def run(plan: Plan) -> list[Figure]:
    """Measure the time from submit to the start on a node, one evaluation at a time."""
    count = plan.count(1_000, 100)
    async with Cluster(plan.directory, nodes=2, seed=plan.seed) as cluster:
        await run_clients(cluster, {"warm": [request(f"w{i}", f"w{i}") for i in range(30)]}, limit_seconds=60)
        load = {"c1": [request(f"e{i}", f"e{i}", seconds=0.005) for i in range(count)]}
        await run_clients(cluster, load, limit_seconds=60 + count * 0.1, window=1)
        events = await audit_all(cluster)
    started = {e["work"]: e.at for e in of_kind(events, "attempt", "invoke")}
    waits = [1000 * (started[e["work"]] - e.at) for e in of_kind(events, "submit", "invoke", client="c1")]
    return [
        at_most(24, "", f"from submit to start, p50 of {count}", percentile(waits, 0.5), 10, "ms"),
        at_most(24, "", "the same, p99", percentile(waits, 0.99), 50, "ms"),
        *kept(24, "1", events),
    ]
