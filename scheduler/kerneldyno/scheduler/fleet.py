"""The registered nodes: leases, and where an attempt goes. Pure; `core` is its only user."""

from __future__ import annotations

from collections.abc import Iterable

from kerneldyno.scheduler.model import Evaluation, Node, NodeState, Report, Requirement

#: A node that is gone stays listed this long (seconds), and its backends stay known: it may only be restarting.
FORGET_SECONDS = 600.0
#: Heartbeats after which silence means that a process of the same name is a restart and not a twin.
SILENT_HEARTBEATS = 2.5
#: How much busier (in shares of its lanes) a node may be than another and still be preferred for its hot reference.
HOT_ADVANTAGE = 0.5
#: Longest pause (seconds) of a node that keeps failing attempts.
MAX_HOLD_SECONDS = 30.0


class Fleet:
    """Nodes by id."""

    def __init__(self, heartbeat_seconds: float, lease_seconds: float) -> None:
        self.nodes: dict[str, Node] = {}
        self._heartbeat = heartbeat_seconds
        self._lease = lease_seconds

    def is_twin(self, report: Report, now: float) -> bool:
        """Say whether `report` comes from a second live process under a name that is taken.

        A restart comes from the same address (only one process can hold it), or after its predecessor fell silent.
        """
        known = self.nodes.get(report.node_id)
        return (
            known is not None
            and known.state is not NodeState.LOST
            and known.report.instance_id != report.instance_id
            and known.report.address != report.address
            and now - known.heard_at < SILENT_HEARTBEATS * self._heartbeat
        )

    def update(self, report: Report, now: float, wall: float) -> Node:
        """Register the node or renew its lease."""
        node = self.nodes.get(report.node_id)
        if node is None or node.report.instance_id != report.instance_id:
            node = self.nodes[report.node_id] = Node(report, NodeState.SERVING, now, wall)
        node.report, node.heard_at, node.heard_wall = report, now, wall
        node.state = NodeState.DRAINING if report.draining else NodeState.SERVING
        return node

    def renew_all(self, now: float) -> None:
        """Grant every node a whole lease: it was this process that slept, not they."""
        for node in self.live():
            node.heard_at = now

    def expired(self, now: float) -> list[Node]:
        """Return the nodes whose lease has ended and that are not yet marked lost; forget those long gone."""
        for node in list(self.nodes.values()):
            if node.state is NodeState.LOST and now - node.heard_at > self._lease + FORGET_SECONDS:
                del self.nodes[node.id]
        return [node for node in self.live() if now - node.heard_at > self._lease]

    def live(self) -> list[Node]:
        """Return the nodes that are not lost."""
        return [node for node in self.nodes.values() if node.state is not NodeState.LOST]

    def any_offers(self, need: Requirement) -> bool:
        """Say whether a live node could run such work."""
        return any(node.offers(need) for node in self.nodes.values())

    def hold(self, node: Node, now: float, seconds: float | None = None) -> None:
        """Send nothing to `node` for `seconds`; without them, for longer after each failure in a row."""
        if seconds is None:
            node.failures += 1
            seconds = min(MAX_HOLD_SECONDS, 2.0 ** (node.failures - 1))
        node.held_until = max(node.held_until, now + seconds)

    def choose(self, evaluation: Evaluation, now: float) -> Node | None:
        """Return the best node with a place for `evaluation`, or None.

        Nodes that failed it before come last, then those without a free lane; among the rest the least busy one, where
        a hot reference counts as some lanes' worth of idleness.
        """
        spec = evaluation.spec
        assert spec is not None, "a finished evaluation is not placed"
        places = [
            node
            for node in self.nodes.values()
            if node.state is NodeState.SERVING
            and node.held_until <= now
            and node.offers(spec.requirement)
            and node.has_place(spec.requirement)
        ]

        def cost(node: Node) -> tuple[bool, bool, float, str]:
            busy = len(node.attempts) / node.lanes
            hot = spec.reference in node.hot
            return (
                node.id in evaluation.unlucky_nodes,
                len(node.attempts) >= node.lanes,
                busy - (HOT_ADVANTAGE if hot else 0.0),
                node.id,
            )

        return min(places, key=cost, default=None)


def union(sets: Iterable[frozenset[str]]) -> list[str]:
    """Return all members of `sets`, sorted."""
    return sorted(frozenset().union(*sets))
