"""Reader of docs/metrics.md: the names, types and labels that dashboards and alerts may use."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
#: Prometheus' own series, with their labels.
OWN = {"up": {"job", "instance"}, "ALERTS": {"alertname", "alertstate"}}
#: Labels that the scrape adds to every series.
SCRAPED = {"job", "instance"}


@dataclass(frozen=True)
class Metric:
    """A row of the page."""

    name: str
    kind: str
    labels: frozenset[str]


@functools.cache
def metrics() -> dict[str, Metric]:
    """Return all rows, by name."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    found = {name: Metric(name, kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(found) == len(rows) > 80, "the page's tables are not read"
    return found


def values(label: str) -> set[str]:
    """Return the values that the page gives for a label in any series."""
    rows = re.findall(rf"^\| `{label}`[^|]*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {value for row in rows for value in re.findall(r"`([A-Za-z0-9_]+)`", row)}


def series(expr: str) -> set[tuple[str, frozenset[str]]]:
    """Return the series that an expression asks for, each as a name and the labels that it selects by."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
    found = set()
    for name, matchers in re.findall(r"\b((?:kerneldyno|grpc|process)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?", text):
        found.add((name, frozenset(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))))
    return found


def mistakes(expr: str) -> list[str]:
    """Return the things that an expression uses and the page does not have, one line each."""
    known, notes = metrics(), []
    asked = series(expr)
    if not asked:
        notes.append(f"no series in {expr}")
    for name, labels in asked:
        if name in OWN:
            allowed = OWN[name]
        else:
            plain = re.sub(r"_(bucket|sum|count)$", "", name)
            metric = known.get(name) or (known.get(plain) if name != plain else None)
            if metric is None:
                notes.append(f"{name} is not in docs/metrics.md")
                continue
            if (metric.kind == "histogram") != (name != metric.name):
                notes.append(f"{name}: {metric.name} is a {metric.kind}")
            allowed = set(metric.labels | SCRAPED)
        notes += [f"{name} has no label {label}" for label in labels - allowed]
    grouped = re.findall(r"\b(?:by|on|group_left|without)\s*\(([^)]*)\)", expr)
    by = {label.strip() for labels in grouped for label in labels.split(",") if label.strip()}
    everything = {label for metric in known.values() for label in metric.labels} | SCRAPED | {"le"}
    return notes + [f"nothing has the label {label}" for label in by - everything]
