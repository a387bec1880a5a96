"""What the registered nodes offer: backends, toolkits, environments, and room for the attempts of one requirement. Pure.

Every request and every placement asks these questions, so the answers are precomputed: a pool for each requirement with
the live nodes that offer it, and what all nodes together offer. `Fleet` says when a node's report or state has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kerneldyno.scheduler.core.model import Node, Report, Requirement

#: Upper limit of the precomputed pools and fingerprints, because clients can ask for any number of requirements.
_MAX_CACHED = 1024


class Offers:
    """The offers of `nodes`, by node id, which `Fleet` changes.

    `fingerprint` maps (a node's serialised environment, a device model) to the digest of that environment.
    """

    def __init__(self, nodes: Mapping[str, Node], fingerprint: Callable[[bytes, str], bytes]) -> None:
        self._nodes = nodes
        self._fingerprint = fingerprint
        self._fingerprints: dict[tuple[bytes, str], bytes] = {}
        self._pools: dict[Requirement, _Pool] = {}
        self._known: _Known | None = None

    def backends(self) -> list[str] | None:
        """Return the backends of all nodes, including those lost lately; None while no node is live."""
        return self._together().backends

    def toolkits(self) -> list[str] | None:
        """Return the toolkits of all nodes, including those lost lately; None while no node is live."""
        return self._together().toolkits

    def profiling(self) -> bool:
        """Return True if some node can profile."""
        return self._together().profiling

    def could_match(self, need: Requirement) -> bool:
        """Return True if some node offers what `need` asks for, including nodes lost lately."""
        return any(node.report.offers(need) for node in self._nodes.values())

    def match(self, need: Requirement) -> bool:
        """Return True if a live node offers what `need` asks for."""
        return bool(self._pool(need).room)

    def environments(self, need: Requirement) -> set[bytes]:
        """Return the fingerprints of the environments in which such work could run: the matching devices of live nodes."""
        pool = self._pool(need)
        if pool.environments is None:
            pool.environments = {
                self._fingerprint_of(node.report.environment, device.model)
                for node in pool.room
                for device in node.report.devices
                if device.matches(need)
            }
        return pool.environments

    def room(self, need: Requirement) -> Mapping[Node, int]:
        """Return the live nodes that offer `need`, and how many more such attempts each one's devices have room for.

        Each ready device takes one attempt per lane and one more, so that the next one is there when a lane becomes free.
        Attempts that may need a build have the node's builders in addition.
        """
        return self._pool(need).room

    def take_room(self, node: Node, need: Requirement, attempts: int) -> None:
        """Record that `node` runs `attempts` more of this requirement; a negative number gives room back."""
        if (pool := self._pools.get(need)) is not None and node in pool.room:
            pool.room[node] -= attempts

    def update(self, node: Node) -> None:
        """Recompute what depends on the report of `node`, which is live."""
        self._known = None
        for pool in self._pools.values():
            pool.update(node)

    def remove(self, node: Node) -> None:
        """Stop offering what `node` offered as a live node."""
        self._known = None
        for pool in self._pools.values():
            pool.remove(node)

    def _together(self) -> _Known:
        if self._known is None:
            reports = [node.report for node in self._nodes.values()]
            live = any(not node.lost for node in self._nodes.values())
            self._known = _Known(
                backends=_union(report.backends for report in reports) if live else None,
                toolkits=_union(report.toolkits for report in reports) if live else None,
                profiling=any(report.profiling for report in reports),
            )
        return self._known

    def _pool(self, need: Requirement) -> _Pool:
        pool = self._pools.get(need)
        if pool is None:
            if len(self._pools) >= _MAX_CACHED:
                self._pools.clear()
            pool = self._pools[need] = _Pool(need)
            for node in self._nodes.values():
                if not node.lost:
                    pool.update(node)
        return pool

    def _fingerprint_of(self, environment: bytes, model: str) -> bytes:
        key = (environment, model)
        if key not in self._fingerprints:
            if len(self._fingerprints) >= _MAX_CACHED:
                self._fingerprints.clear()
            self._fingerprints[key] = self._fingerprint(environment, model)
        return self._fingerprints[key]


def offered_by(report: Report) -> tuple[object, ...]:
    """Return the parts of a report that decide which work the node can run."""
    return (
        report.devices,
        report.backends,
        report.toolkits,
        report.profiling,
        report.labels,
        report.builders,
        report.environment,
    )


class _Known(NamedTuple):
    backends: list[str] | None
    toolkits: list[str] | None
    profiling: bool


class _Pool:
    """The live nodes that offer one requirement."""

    __slots__ = ("environments", "need", "room")

    def __init__(self, need: Requirement) -> None:
        self.need = need
        self.room: dict[Node, int] = {}
        self.environments: set[bytes] | None = None

    def update(self, node: Node) -> None:
        """Add, update or remove `node` according to its report."""
        self.environments = None
        if node.offers(self.need):
            room = sum(d.lanes + 1 for d in node.report.devices if d.ready and d.lanes > 0 and d.matches(self.need))
            if room and self.need.may_build:
                room += node.builders
            self.room[node] = room - node.attempts_by_requirement.get(self.need, 0)
        else:
            self.room.pop(node, None)

    def remove(self, node: Node) -> None:
        """Remove `node`."""
        self.environments = None
        self.room.pop(node, None)


def _union(sets: Iterable[frozenset[str]]) -> list[str]:
    return sorted(frozenset().union(*sets))
