"""Show results in a terminal: the card of one verdict, and the summary of many.

Text that a candidate may have written (messages, logs, tracebacks) is shown as plain text: no markup, no escapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kerneldyno.report.wording import colour, facts, speedup_words, texts
from kerneldyno.v1.evaluation_pb2 import EvalResult


def verdict_card(result: EvalResult) -> RenderableType:
    """Return the card of one result: outcome, times, evidence, place, and the candidate's own traceback and output."""
    border = colour(result.outcome)
    parts: list[RenderableType] = []
    if result.message:
        parts.append(plain(result.message))
    parts.append(fact_table(facts(result)))
    for heading, text in texts(result):
        parts.append(Text(f"\n{heading}", style="bold"))
        parts.append(plain(text))
    return _Card(verdict_line(result), Group(*parts), border)


def verdict_line(result: EvalResult) -> Text:
    """Return the outcome in its colour, and the speedup that counts."""
    title = EvalResult.Outcome.Name(result.outcome)
    if result.outcome == EvalResult.CORRECT and (speedup := speedup_words(result)):
        title += f"  {speedup}"
    return Text(title, style=f"bold {colour(result.outcome)}")


def fact_table(found: Iterable[tuple[str, str]]) -> Table:
    """Return names and values as two columns; both may be text from outside."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in found:
        grid.add_row(plain(name), plain(value))
    return grid


@dataclass(frozen=True, slots=True)
class _Card:
    """Draw a box with a heading in a terminal; elsewhere the heading and the lines, as a box would fold long lines."""

    title: Text
    content: Group
    border: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.is_terminal:
            yield Panel(self.content, title=self.title, title_align="left", border_style=self.border)
        else:
            yield self.title
            yield self.content


def summary_table(outcomes: Counter[str], title: str) -> RenderableType:
    """Return a table of outcomes and their counts; the title alone if there are none."""
    if not outcomes:
        return Text(f"{title}: nothing was judged in this run", style="italic")
    table = Table(show_edge=False)
    table.add_column("outcome")
    table.add_column("results", justify="right")
    table.add_column("share", justify="right")
    total = outcomes.total()
    for outcome, count in outcomes.most_common():
        table.add_row(outcome_text(EvalResult.Outcome.Value(outcome)), str(count), f"{count / total:.1%}")
    table.add_row(Text("all", style="bold"), str(total), "")
    return Group(Text(title, style="italic"), table)  # a table folds a title of its own


def outcome_text(outcome: EvalResult.Outcome.ValueType) -> Text:
    """Return the name of an outcome, in its colour."""
    return Text(EvalResult.Outcome.Name(outcome), style=colour(outcome))


def plain(text: str) -> Text:
    """Return text from outside without anything that could control a terminal."""
    return Text("".join(c for c in text.expandtabs(4) if c == "\n" or c.isprintable()).rstrip("\n"))
