"""The life of a node: registration, lease, Work stream, drain, quarantine and loss."""

from __future__ import annotations

from kerneldyno.scheduler.core.attempts import Attempts
from kerneldyno.scheduler.core.context import Context
from kerneldyno.scheduler.core.fleet import Fleet
from kerneldyno.scheduler.core.model import Node, NodeState, Report
from kerneldyno.scheduler.core.records import Drained
from kerneldyno.scheduler.core.retries import Retries
from kerneldyno.scheduler.core.unmatched import Unmatched


class Nodes:
    """Applies what nodes and operators say about nodes."""

    def __init__(
        self,
        context: Context,
        *,
        fleet: Fleet,
        attempts: Attempts,
        retries: Retries,
        unmatched: Unmatched,
    ) -> None:
        self._lease_seconds = context.settings.lease_seconds
        self._clock = context.clock
        self._journal = context.journal
        self._observers = context.observers
        self._fleet = fleet
        self._attempts = attempts
        self._retries = retries
        self._unmatched = unmatched

    def synchronize(self, report: Report) -> list[str] | None:
        """Register a node or renew its lease.

        Returns:
            The tokens of attempts that the node must drop; None if another live process uses its id.
        """
        now = self._clock.monotonic()
        if self._fleet.is_duplicate(report, now):
            return None
        before = self._fleet.nodes.get(report.node_id)
        if before is not None and before.report.instance_id != report.instance_id:
            self._retries.lose_attempts(before, f"node {before.id} was restarted")
        known = before if before is not None and not before.lost and before.report.devices else None
        node = self._fleet.update(report, now, self._clock.wall())
        if node is not known:
            self._unmatched.node_joined(now)
            self._observers.tell(lambda observer: observer.node_joined(node))
        self._observers.work_changed()
        held = report.attempt_tokens
        return [token for token in held if token not in node.attempts and not self._attempts.settling(token)]

    def connect(self, node_id: str, instance_id: str) -> Node | None:
        """Record that a node's Work stream is open, and return the node; None if this instance has no lease."""
        node = self._fleet.nodes.get(node_id)
        if node is None or node.lost or node.report.instance_id != instance_id or not node.report.devices:
            return None
        self._fleet.connect(node)
        self._observers.work_changed()
        return node

    def heard(self, node: Node) -> None:
        """Renew the lease of a node because a message arrived from it."""
        if not node.lost:
            node.heard_at, node.heard_wall = self._clock.monotonic(), self._clock.wall()

    def disconnect(self, node: Node) -> None:
        """Record that the node's Work stream has ended. Its attempts go on while its lease lasts."""
        self._fleet.disconnect(node)

    def lose(self, node: Node, detail: str, *, expired: bool = False) -> None:
        """Give up a node: its attempts start elsewhere, and results of the old attempts are refused.

        Args:
            node: The node; nothing happens if it is lost already.
            detail: Why, as text for people.
            expired: True if its lease ended, False if it was found dead.
        """
        if not node.lost:
            stopped = node.state is NodeState.DRAINING and not node.attempts
            self._fleet.lose(node)
            if not stopped:
                self._observers.tell(lambda observer: observer.node_lost(node, expired=expired))
            self._retries.lose_attempts(node, detail)
            self._observers.work_changed()

    def lose_expired(self, now: float) -> None:
        """Give up the nodes whose lease has ended."""
        for node in self._fleet.expired(now):
            self.lose(node, f"node {node.id} was not heard of for {self._lease_seconds:g} s", expired=True)

    def drain(self, node_id: str, drained: bool) -> None:
        """Stop placing attempts on a node, or start again."""
        self._fleet.set_drained(node_id, drained)
        self._journal.append(Drained(node_id, drained))
        self._observers.work_changed()

    def release(self, node: Node) -> None:
        """End the quarantine of a node."""
        self._fleet.release(node)
        self._observers.work_changed()
