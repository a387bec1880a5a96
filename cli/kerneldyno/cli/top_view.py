"""The state that `kerneldyno top` keeps of a cluster, and its forms: a picture, a line, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneldyno.cli.cards import outcome_text, plain
from kerneldyno.cli.common import lasting, to_json
from kerneldyno.cli.nodes import _COLOURS, _devices, _state
from kerneldyno.cli.top_meter import LONGEST_SECONDS, Meter
from kerneldyno.v1 import fleet_service_pb2 as pb
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.scheduler_service_pb2 import SchedulerServiceGetCapabilitiesResponse

#: Seconds over which rates are computed.
_SHORT_SECONDS = 10.0
_BAR_WIDTH = 12
#: Width from which there is room for labels.
_WIDE = 110
#: Columns between two columns; and columns that may be shortened, in this order, with their least widths.
_GAP = 2
_NARROWEST = {"labels": 10, "devices": 16, "state": 24, "node": 16, "lanes": 2}
#: Lines apart from the rows of both tables: three of the head, two table heads with a blank line before each, "...
#: more".
_OTHER_LINES = 9
_FEWEST_ROWS, _MOST_OUTCOMES = 2, 6
#: Most shares that are shown in a terminal, and the number of lines from which they are.
_MOST_SHARES, _SHARES_FROM = 5, 24


class Cluster:
    """What is known of a cluster. Times are of the monotonic clock."""

    def __init__(self, address: str, able: SchedulerServiceGetCapabilitiesResponse) -> None:
        self.address = address
        self.able = able
        self.snapshot: pb.WatchClusterResponse | None = None
        self.meter = Meter()
        #: Why the scheduler cannot be reached, and since when; None while it can.
        self.away: str | None = None
        self.away_since = 0.0

    def seen(self, snapshot: pb.WatchClusterResponse, now: float) -> None:
        """Store a snapshot."""
        self.snapshot = snapshot
        self.meter.add(now, snapshot.outcomes)
        self.away = None

    def answered(self) -> None:
        """Note that the scheduler answers."""
        self.away = None

    def lost(self, why: str, now: float) -> None:
        """Note that it does not."""
        if self.away is None:
            self.away_since = now
        self.away = why

    @property
    def nodes(self) -> Sequence[pb.Node]:
        """Return the nodes, those that need attention first."""
        found = self.snapshot.nodes if self.snapshot is not None else ()
        return sorted(found, key=lambda node: (_is_healthy(node), node.node_id))

    @property
    def lanes(self) -> int:
        """Return the lanes on ready devices of serving nodes."""
        return sum(_lanes(node) for node in self.nodes if node.state == pb.NODE_STATE_SERVING)

    @property
    def building(self) -> int:
        """Return the attempts whose native code is being built. They run, and take no lane."""
        return sum(node.building for node in self.nodes)


def line(cluster: Cluster, now: float) -> str:
    """Return the cluster in one line."""
    snapshot = cluster.snapshot
    assert snapshot is not None
    if cluster.away is not None:
        return plain(f"the scheduler has been away for {lasting(now - cluster.away_since)}: {cluster.away}").plain
    stalled = [f"JOURNAL STALLED ({snapshot.journal_stalled})"] if snapshot.journal_stalled else []
    parts = [
        *stalled,
        _head_of_nodes(cluster),
        f"{snapshot.running} running{_of_these(cluster)}",
        f"{snapshot.queued} waiting",
        _rates(cluster, now),
    ]
    mix = Counter(dict(snapshot.outcomes)).most_common()
    return plain(", ".join(parts) + "".join(f"  {name} {count}" for name, count in mix)).plain


def report(cluster: Cluster, now: float, wall: datetime) -> dict[str, Any]:
    """Return the cluster as JSON data. Rates are evaluations per second; null if there is nothing to compare yet."""
    snapshot = cluster.snapshot
    assert snapshot is not None
    return {
        "time": wall.isoformat(timespec="milliseconds"),
        "address": cluster.address,
        "version": cluster.able.version,
        "store": cluster.able.store,
        "journal_stalled": snapshot.journal_stalled or None,
        "away_seconds": None if cluster.away is None else round(now - cluster.away_since, 3),
        "queued": snapshot.queued,
        "running": snapshot.running,
        "building": cluster.building,
        "lanes": cluster.lanes,
        "rate_10s": cluster.meter.rate(now, _SHORT_SECONDS),
        "rate_60s": cluster.meter.rate(now, LONGEST_SECONDS),
        "outcomes": dict(snapshot.outcomes),
        "outcomes_60s": dict(cluster.meter.gained(now)),
        "shares": [to_json(share) for share in snapshot.shares],
        "snapshot_time": snapshot.snapshot_time.ToJsonString(),
        "nodes": [to_json(node) for node in snapshot.nodes],
    }


def picture(cluster: Cluster, now: float, width: int, height: int | None) -> RenderableType:
    """Return the cluster for a terminal of `width` columns and `height` lines; None for as many lines as needed."""
    outcomes = _outcome_rows(cluster, now)
    nodes = list(cluster.nodes)
    shown = len(nodes)
    shares = _shown_shares(cluster, height)
    if height is not None:
        height -= len(shares) + 2 if shares else 0
        room = max(2 * _FEWEST_ROWS, height - _OTHER_LINES)
        outcomes = outcomes[: max(_FEWEST_ROWS, min(len(outcomes), _MOST_OUTCOMES, room - min(len(nodes), room // 2)))]
        shown = max(_FEWEST_ROWS, room - len(outcomes))
    parts: list[RenderableType] = [*_head(cluster, now, width)]
    if outcomes:
        parts += [Text(""), _outcome_table(outcomes)]
    if shares:
        parts += [Text(""), _share_table(shares)]
    if nodes:
        parts += [Text(""), _node_table(nodes[:shown], width)]
    else:
        parts += [
            Text(""),
            Text("No evaluator is registered: python -m kerneldyno.evaluator --scheduler ...", "yellow"),
        ]
    if len(nodes) > shown:
        parts.append(Text(f"... and {len(nodes) - shown} more nodes", "dim"))
    return Group(*parts)


def _head(cluster: Cluster, now: float, width: int) -> list[Text]:
    snapshot = cluster.snapshot
    assert snapshot is not None
    about = Text("kerneldyno top ", "bold")
    about.append_text(
        plain(f"{cluster.address}, version {cluster.able.version}, store {cluster.able.store or 'unknown'}")
    )
    if cluster.away is not None:
        text = plain(f"AWAY for {lasting(now - cluster.away_since)}, what follows is old: {cluster.away}")
        text.stylize("bold red")
        about = text
    elif snapshot.journal_stalled:
        about = plain(f"JOURNAL STALLED, no verdict is told: {snapshot.journal_stalled}")
        about.stylize("bold red")
    busy = Text.assemble(f"{_head_of_nodes(cluster)}  ", _bar(snapshot.running - cluster.building, cluster.lanes))
    running = f" running{_of_these(cluster)}, "
    work = Text.assemble((str(snapshot.running), "bold"), running, (str(snapshot.queued), "bold"), " waiting")
    limit = cluster.able.limits.max_queued
    if limit and snapshot.queued >= limit:
        work.append(" (full)", "bold red")
    work.append(f", {_rates(cluster, now)}")
    rate = cluster.meter.rate(now, LONGEST_SECONDS)
    if snapshot.queued and rate:
        work.append(f", empty in about {lasting(snapshot.queued / rate)}")
    for text in (about, busy, work):
        text.no_wrap = True
        text.truncate(width, overflow="ellipsis")
    return [about, busy, work]


def _head_of_nodes(cluster: Cluster) -> str:
    nodes = cluster.nodes
    serving = sum(node.state == pb.NODE_STATE_SERVING for node in nodes)
    devices = [device for node in nodes if node.state == pb.NODE_STATE_SERVING for device in node.devices]
    ready = sum(device.ready for device in devices)
    return f"{serving} of {len(nodes)} nodes serving, {ready} of {len(devices)} devices ready, {cluster.lanes} lanes"


def _of_these(cluster: Cluster) -> str:
    """Return how many of the running attempts are building, or nothing if none is."""
    return f" ({cluster.building} building)" if cluster.building else ""


def _rates(cluster: Cluster, now: float) -> str:
    watched = cluster.meter.watched(now)
    spans = [_SHORT_SECONDS, watched] if watched > _SHORT_SECONDS else [watched]
    rates = [(cluster.meter.rate(now, span), span) for span in spans]
    return ", ".join(f"{rate:.1f}/s over {span:.0f} s" for rate, span in rates if rate is not None) or "no rate yet"


def _outcome_rows(cluster: Cluster, now: float) -> list[tuple[str, int, int]]:
    """Return name, count of the last minute and total count, the most frequent first."""
    assert cluster.snapshot is not None
    recent = cluster.meter.gained(now)
    totals = Counter(dict(cluster.snapshot.outcomes))
    return [(name, recent[name], count) for name, count in totals.most_common() if count]


def _outcome_table(rows: Sequence[tuple[str, int, int]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("verdict", no_wrap=True, min_width=22)
    for heading in ("last minute", "since its start", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    everything = sum(count for _, _, count in rows)
    for name, recent, count in rows:
        known = name in EvalResult.Outcome.keys()  # noqa: SIM118 - no mapping
        label = outcome_text(EvalResult.Outcome.Value(name)) if known else plain(name)
        table.add_row(label, str(recent), str(count), f"{count / everything:.0%}")
    return table


def _shown_shares(cluster: Cluster, height: int | None) -> Sequence[pb.Share]:
    """Return who has unfinished evaluations, as far as there is room."""
    assert cluster.snapshot is not None
    if height is None:
        return cluster.snapshot.shares
    return cluster.snapshot.shares[:_MOST_SHARES] if height >= _SHARES_FROM else ()


def _share_table(shares: Sequence[pb.Share]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("share", no_wrap=True, min_width=22, max_width=40, overflow="ellipsis")
    for heading in ("unfinished", "at most", "running", "weight"):
        table.add_column(heading, justify="right", no_wrap=True)
    for share in shares:
        full = share.unfinished >= share.max_unfinished
        count = Text(str(share.unfinished), style="bold red" if full else "")
        numbers = (str(share.max_unfinished), str(share.running), f"{share.weight:g}")
        table.add_row(plain(share.name or "no client id"), count, *numbers)
    return table


def _node_table(nodes: Sequence[pb.Node], width: int) -> Table:
    rows = [
        {
            "node": plain(node.node_id),
            "state": Text(_state(node), style=_COLOURS.get(node.state, "")),
            "devices": plain(_devices(node)),
            "lanes": _bar(node.running - node.building, _lanes(node)),
            "running": Text(f"{node.running - node.building}/{_lanes(node)}"),
            "building": Text(f"{node.building}/{node.builders}" if node.builders else ""),
            "labels": plain(", ".join(f"{key}={value}" for key, value in sorted(node.labels.items()))),
        }
        for node in nodes
    ]
    if width < _WIDE or not any(row["labels"] for row in rows):
        for row in rows:
            del row["labels"]
    if not any(row["building"] for row in rows):
        for row in rows:
            del row["building"]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, most in _widths(rows, width).items():
        right = heading in ("running", "building")
        table.add_column(heading, no_wrap=True, overflow="ellipsis", width=most, justify="right" if right else "left")
    for row in rows:
        table.add_row(*row.values())
    return table


def _widths(rows: Sequence[Mapping[str, Text]], width: int) -> dict[str, int]:
    """Return how wide each column is: as wide as its contents, or less if there is no room."""
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in rows[0]}
    beyond = sum(widths.values()) + _GAP * (len(widths) - 1) - width
    for name, least in _NARROWEST.items():
        if beyond > 0 and name in widths:
            less = min(beyond, max(0, widths[name] - least))
            widths[name], beyond = widths[name] - less, beyond - less
    return widths


def _bar(used: int, of: int) -> Text:
    """Return a bar for the used share of something; more than all is shown as all."""
    full = 0 if of <= 0 else min(_BAR_WIDTH, round(_BAR_WIDTH * used / of))
    if used > 0:
        full = max(1, full)
    return Text.assemble(("█" * full, "green" if used <= of else "yellow"), ("░" * (_BAR_WIDTH - full), "dim"))


def _lanes(node: pb.Node) -> int:
    return sum(device.lanes for device in node.devices if device.ready)


def _is_healthy(node: pb.Node) -> bool:
    return node.state == pb.NODE_STATE_SERVING and node.connected and all(device.ready for device in node.devices)
