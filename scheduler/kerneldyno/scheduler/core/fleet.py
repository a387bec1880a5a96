"""The registered nodes: leases, quarantine of nodes, and the choice of a node for an attempt. Pure.

To be fast, placement considers only nodes that take work and have room (`_open`), and asks `offers` which of them offer a
requirement. Nodes have separate room for attempts that may need a build (`Node.takes`).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from kerneldyno.scheduler.core.model import Attempt, Job, Node, NodeState, Report
from kerneldyno.scheduler.core.offers import Offers, offered_by

#: Seconds for which a lost node stays listed and its backends stay known, because it may only be restarting.
FORGET_SECONDS = 600.0
#: Missed heartbeats after which another process with the same node id counts as a restart and not as a duplicate.
SILENT_HEARTBEATS = 2.5
#: How much busier than the mean a node may be and still be preferred for a hot reference (bounded loads: Mirrokni et al.).
HOT_LOAD = 1.25
#: Consecutive failures that put a node into quarantine.
QUARANTINE_FAILURES = 3
#: First and longest pause in seconds between the attempts of a node in quarantine.
QUARANTINE_SECONDS = (10.0, 300.0)
#: Crashes after which a job is kept apart from others like it: no two such jobs share a node.
SUSPECT_CRASHES = 2

_load = attrgetter("load")


class Fleet:
    """The registered nodes by id."""

    def __init__(
        self, heartbeat_seconds: float, lease_seconds: float, fingerprint: Callable[[bytes, str], bytes]
    ) -> None:
        """Create an empty fleet.

        Args:
            heartbeat_seconds: Time between two reports of a node.
            lease_seconds: Time without a sign of life after which a node is lost.
            fingerprint: Maps (a node's serialised environment, a device model) to the digest of that environment.
        """
        self.nodes: dict[str, Node] = {}
        self.offers = Offers(self.nodes, fingerprint)
        self._heartbeat = heartbeat_seconds
        self._lease = lease_seconds
        self._drained: set[str] = set()
        self._last_try: set[Attempt] = set()
        self._open: dict[bool, set[Node]] = {False: set(), True: set()}  # by Requirement.may_build

    # Leases

    def is_duplicate(self, report: Report, now: float) -> bool:
        """Return True if `report` comes from a second live process that uses a taken node id.

        A restarted node reports from the same address (only one process can hold it), or after its predecessor missed
        SILENT_HEARTBEATS. Without an address, it reports after its predecessor's Work stream closed.
        """
        known = self.nodes.get(report.node_id)
        if (
            known is None
            or known.lost
            or known.report.instance_id == report.instance_id
            or now - known.heard_at >= SILENT_HEARTBEATS * self._heartbeat
        ):
            return False
        if report.address and known.report.address:
            return report.address != known.report.address
        return known.connected

    def update(self, report: Report, now: float, wall: float) -> Node:
        """Register the node or renew its lease. A new instance gets a new Node with the old one's drain and failures."""
        node = self.nodes.get(report.node_id)
        if node is None or node.report.instance_id != report.instance_id:
            node = self._replace(node, report, now, wall)
        else:
            changed = node.lost or offered_by(node.report) != offered_by(report)
            node.report, node.heard_at, node.heard_wall, node.lost = report, now, wall, False
            if changed:
                self._index(node)
            self._refresh(node)
        return node

    def restore(self, node_id: str, instance_id: str, now: float, wall: float) -> Node:
        """Return the node with that id. An unknown one is added and has one lease of time to report."""
        node = self.nodes.get(node_id)
        return node if node is not None else self._replace(None, Report(node_id, instance_id), now, wall)

    def renew_all(self, now: float) -> None:
        """Renew every lease, because this process was suspended and could not receive heartbeats."""
        for node in self.live():
            node.heard_at = now

    def extend_all(self, seconds: float) -> None:
        """Extend every lease by `seconds`, the time for which the scheduler was too busy to read heartbeats."""
        for node in self.live():
            node.heard_at += seconds

    def expired(self, now: float) -> list[Node]:
        """Return the live nodes whose lease has ended, and remove nodes that were lost FORGET_SECONDS ago."""
        for node in list(self.nodes.values()):
            if node.lost and not node.connected and now - node.heard_at > self._lease + FORGET_SECONDS:
                del self.nodes[node.id]
                self._unindex(node)
        return [node for node in self.live() if now - node.heard_at > self._lease]

    def lose(self, node: Node) -> None:
        """Mark `node` lost: it gets no attempts and offers nothing until it reports again."""
        node.lost = True
        self._unindex(node)

    def live(self) -> list[Node]:
        """Return the nodes that are not lost."""
        return [node for node in self.nodes.values() if not node.lost]

    # Whether a node takes work

    def connect(self, node: Node) -> None:
        """Record that the node's Work stream is open."""
        node.connected = True
        self._refresh(node)

    def disconnect(self, node: Node) -> None:
        """Record that the node's Work stream is closed."""
        node.connected = False
        self._refresh(node)

    def set_drained(self, node_id: str, drained: bool) -> None:
        """Set whether the node with that id is drained, now and whenever it registers."""
        (self._drained.add if drained else self._drained.discard)(node_id)
        if (node := self.nodes.get(node_id)) is not None:
            node.drained = drained
            self._refresh(node)

    def hold(self, node: Node, now: float, seconds: float) -> None:
        """Place nothing on `node` for `seconds`."""
        node.held_until = max(node.held_until, now + seconds)

    def failed(self, node: Node, now: float, wall: float) -> None:
        """Record an infrastructure failure on `node`: pause it, longer each time, and then put it into quarantine."""
        if node.quarantined_wall and now < node.held_until:
            return  # the attempt started before the quarantine: it failed for the same reason and is not counted again
        node.failures += 1
        beyond = node.failures - QUARANTINE_FAILURES
        if beyond < 0:
            self.hold(node, now, 2.0 ** (node.failures - 1))
            return
        shortest, longest = QUARANTINE_SECONDS
        self.hold(node, now, min(longest, shortest * 2.0 ** min(beyond, 30)))
        node.quarantined_wall = node.quarantined_wall or wall
        self._refresh(node)

    def succeeded(self, node: Node) -> None:
        """Record that an attempt on `node` gave a verdict: reset its failures and end its quarantine."""
        node.failures = 0
        if node.quarantined_wall:
            self.release(node)

    def release(self, node: Node) -> None:
        """End the quarantine of `node`."""
        node.quarantined_wall = node.held_until = 0.0
        node.failures = 0
        self._refresh(node)

    # Attempts

    def attach(self, attempt: Attempt, *, last_try: bool = False) -> None:
        """Count `attempt` on its node.

        Args:
            attempt: The attempt.
            last_try: True if one more crash ends its job for good. Two such attempts never share a node.
        """
        node, need = attempt.node, attempt.job.spec.requirement
        node.attempts[attempt.token] = attempt
        node.attempts_by_requirement[need] = node.attempts_by_requirement.get(need, 0) + 1
        if last_try or attempt.job.crashes >= SUSPECT_CRASHES:
            self._last_try.add(attempt)
            node.last_try_attempts += 1
        self.offers.take_room(node, need, 1)
        self._refresh(node)

    def detach(self, attempt: Attempt) -> None:
        """Stop counting `attempt` on its node."""
        node, need = attempt.node, attempt.job.spec.requirement
        del node.attempts[attempt.token]
        node.attempts_by_requirement[need] -= 1
        if not node.attempts_by_requirement[need]:
            del node.attempts_by_requirement[need]
        if attempt in self._last_try:
            self._last_try.remove(attempt)
            node.last_try_attempts -= 1
        self.offers.take_room(node, need, -1)
        self._refresh(node)

    def move(self, attempt: Attempt, stage: int, device: str) -> None:
        """Record the stage and the device of `attempt`."""
        attempt.stage, attempt.device = stage, device
        if attempt.may_build:
            self._refresh(attempt.node)

    def choose(self, job: Job, now: float, *, last_try: bool) -> Node | None:
        """Return the best node for `job`, or None if no node has room for it.

        Nodes that did not fail the job before are preferred, then nodes with a free lane. Among these it is the least busy
        node where the job's reference is hot, unless that node is more than HOT_LOAD times as busy as the mean; otherwise
        the least busy node.

        Args:
            job: The job to place.
            now: Monotonic time in seconds.
            last_try: True if one more crash ends the job for good. It then shares a node with no other such job, and goes
                to a node in quarantine only if there is no other.
        """
        need = job.spec.requirement
        if not self._open[need.may_build]:
            return None
        room = self.offers.room(need)
        places = [node for node in self._open[need.may_build] if room.get(node, 0) > 0 and node.held_until <= now]
        if last_try:
            places = [node for node in places if not node.last_try_attempts]
            places = [node for node in places if not node.quarantined_wall] or places
        if not places:
            return None
        best = places
        if job.unlucky_nodes:
            best = [node for node in best if node.id not in job.unlucky_nodes] or best
        best = [node for node in best if node.load[0] < 1.0] or best
        hot = [node for node in best if job.spec.reference in node.hot]
        if hot:
            bound = HOT_LOAD * sum(len(node.attempts) for node in places) / sum(node.lanes for node in places)
            hot = [node for node in hot if len(node.attempts) <= bound * node.lanes + 1]
        return min(hot or best, key=_load)

    def hot_elsewhere(self, job: Job, node: Node, now: float) -> bool:
        """Return True if another eligible node, but not `node`, has the reference of `job` hot."""
        reference = job.spec.reference
        return reference not in node.hot and any(
            reference in other.hot
            and other.connected
            and other.held_until <= now
            and other.state is NodeState.SERVING
            and other.id not in job.unlucky_nodes
            for other in self.offers.room(job.spec.requirement)
        )

    # Inside

    def _replace(self, old: Node | None, report: Report, now: float, wall: float) -> Node:
        node = self.nodes[report.node_id] = Node(report, now, wall, drained=report.node_id in self._drained)
        if old is not None:
            self._unindex(old)
            if old.failures:
                node.failures, node.quarantined_wall = old.failures, old.quarantined_wall
                node.held_until = old.held_until
        self._index(node)
        self._refresh(node)
        return node

    def _index(self, node: Node) -> None:
        """Recompute everything that depends on the report of `node`."""
        ready = [device for device in node.report.devices if device.ready and device.lanes > 0]
        node.lanes = sum(device.lanes for device in ready)
        node.room = node.lanes + len(ready)
        node.builders = node.report.builders if ready else 0
        self.offers.update(node)

    def _unindex(self, node: Node) -> None:
        """Remove `node` from everything that placement looks at."""
        for nodes in self._open.values():
            nodes.discard(node)
        self.offers.remove(node)

    def _refresh(self, node: Node) -> None:
        """Update the load of `node` and whether it is open for attempts. Holds and requirements are checked when placing."""
        building = node.building
        node.load = ((len(node.attempts) - building) / node.lanes if node.lanes else 0.0, building, node.id)
        reachable = node.connected and self.nodes.get(node.id) is node
        for may_build, nodes in self._open.items():
            (nodes.add if reachable and node.takes(may_build=may_build) else nodes.discard)(node)
