"""Show a suite in a terminal: wins by group, incorrect candidates, time by stage, the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import lasting
from kerneldyno.report.candidates import Candidate, colour
from kerneldyno.report.elapsed import WAITING
from kerneldyno.report.fast import FastRow
from kerneldyno.report.figures import StageTimes
from kerneldyno.report.making import Material
from kerneldyno.report.wording import times

#: Most problems that are listed as not correct; the report has all.
_LISTED = 20
_MESSAGE_CHARS = 100


def suite_tables(rows: Sequence[FastRow], material: Material, slowest: int) -> Iterator[RenderableType]:
    """Yield headings and tables, leaving out empty ones."""
    yield _heading("won, by the speedup; sure: its whole 95 % interval is above p (in brackets: a part)")
    yield _fast(rows)
    figures = material.figures
    if figures.without_interval:
        yield Text(
            f"{figures.without_interval} of {figures.timed} right, timed candidates have no interval: no sure win",
            style="dim",
        )
    if wrong := [candidate for candidate in material.candidates if not candidate.correct]:
        more = f", the first {_LISTED}" if len(wrong) > _LISTED else ""
        yield _heading(f"{len(wrong)} not right{more}")
        yield _wrong(wrong[:_LISTED])
    if material.figures.stages:
        yield _heading("time by stage")
        yield _stages(material.figures.stages)
    # A candidate that another run has answered took no time of its own.
    timed = [candidate for candidate in material.candidates if candidate.stages and not candidate.shared]
    if slowest and timed:
        yield _heading("the slowest, without waiting for others")
        yield _slowest(sorted(timed, key=_seconds, reverse=True)[:slowest])


def _heading(text: str) -> RenderableType:
    return Text(f"\n{text}", style="bold")


def _fast(rows: Sequence[FastRow]) -> Table:
    """Return shares of all problems except those without a verdict, which is not their candidates' fault."""
    table = _table()
    table.add_column("group")
    counts = {
        "problems": [row.problems for row in rows],
        "no result": [row.missing for row in rows],
        "no verdict": [row.unjudged for row in rows],
        "right": [row.right for row in rows],
    }
    shown = {name: column for name, column in counts.items() if any(column) or not name.startswith("no ")}
    for name in (*shown, "speedup"):
        table.add_column(name, justify="right")
    for wins in rows[0].wins:
        table.add_column(f"fast@{wins.p:g}", justify="right", no_wrap=True)
    for at, row in enumerate(rows):
        speedup = "" if row.median_speedup is None else times(row.median_speedup)
        shares = [_share(wins.plain, row.denominator) for wins in row.wins]
        table.add_row(plain(row.group or "."), *(str(column[at]) for column in shown.values()), speedup, *shares)
        sure = [_share(wins.sure, row.denominator, wins.possible) for wins in row.wins]
        table.add_row("  sure", *([""] * (len(shown) + 1)), *sure)
    return table


def _share(won: int, of: int, possible: int | None = None) -> str:
    if not of:
        return "-"
    more = f" ({possible})" if possible is not None and possible != won else ""
    return f"{won}{more}, {won / of:.0%}"


def _wrong(candidates: Sequence[Candidate]) -> Table:
    table = _table()
    for name in ("problem", "outcome", "message"):
        table.add_column(name, overflow="fold")
    for candidate in candidates:
        message = " ".join(candidate.message.split())[:_MESSAGE_CHARS]
        table.add_row(
            plain(candidate.problem or candidate.id),
            Text(candidate.outcome, style=colour(candidate.outcome)),
            plain(message),
        )
    return table


def _stages(stages: Sequence[StageTimes]) -> Table:
    table = _table()
    table.add_column("stage")
    for name in ("problems", "median", "90 %", "longest", "all"):
        table.add_column(name, justify="right")
    for stage in stages:
        spent = (stage.median, stage.p90, stage.longest, stage.total)
        table.add_row(stage.name, str(stage.count), *map(lasting, spent))
    return table


def _slowest(candidates: Sequence[Candidate]) -> Table:
    table = _table()
    table.add_column("problem", overflow="fold")
    table.add_column("time", justify="right")
    table.add_column("of that")
    for candidate in candidates:
        longest = sorted(_own(candidate), key=lambda stage: -stage[1])[:3]
        parts = ", ".join(f"{name} {lasting(seconds)}" for name, seconds in longest)
        table.add_row(plain(candidate.problem or candidate.id), lasting(_seconds(candidate)), parts)
    return table


def _own(candidate: Candidate) -> list[tuple[str, float]]:
    return [(name, seconds) for name, seconds in candidate.stages if name not in WAITING]


def _seconds(candidate: Candidate) -> float:
    return sum(seconds for _, seconds in _own(candidate))


def _table() -> Table:
    return Table(show_edge=False)
