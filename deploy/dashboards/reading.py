"""Dashboards as a person with a Prometheus reads them: the panels of the JSON, with Grafana's variables filled in.

The tests ask a Prometheus every query with this, and `pictures` draws the answers. It knows what our own dashboards use.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "compose" / "grafana" / "dashboards"
#: Seconds that Prometheus may take for one answer.
_ANSWER_SECONDS = 30.0


class PrometheusError(Exception):
    """Prometheus could not be reached, or refused a query; says which, and why."""


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    ref: str
    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel, or the title of a row (kind "row")."""

    id: int
    kind: str
    title: str
    unit: str
    x: int
    y: int
    width: int
    height: int
    targets: tuple[Target, ...]
    raw: Mapping[str, Any]


def panels(dashboard: Mapping[str, Any]) -> list[Panel]:
    """All panels of a dashboard's JSON, rows too, in reading order."""
    found = []
    for raw in dashboard["panels"]:
        place = raw["gridPos"]
        targets = tuple(
            Target(target["refId"], target["expr"], target.get("legendFormat", "")) for target in raw.get("targets", ())
        )
        unit = raw.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
        where = (place["x"], place["y"], place["w"], place["h"])
        found.append(Panel(raw["id"], raw["type"], raw["title"], unit, *where, targets, raw))
    return found


def dashboards() -> dict[str, dict[str, Any]]:
    """The committed dashboards by the stem of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def filled(expr: str, variables: Mapping[str, str]) -> str:
    """The expression with `$name` replaced. Raises ValueError when one is left."""
    for name in sorted(variables, key=len, reverse=True):
        expr = expr.replace(f"${name}", variables[name])
    if "$" in expr:
        raise ValueError(f"a variable is left in {expr}; known are {', '.join(sorted(variables))}")
    return expr


class Prometheus:
    """The HTTP API of a Prometheus at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def query(self, expr: str, at: float | None = None) -> list[dict[str, Any]]:
        """The series of an expression now, or at a Unix time."""
        asked = {"query": expr} | ({} if at is None else {"time": f"{at:.3f}"})
        return list(self.get("query", **asked)["result"])

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of an expression between two Unix times; `step` in seconds."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return list(self.get("query_range", query=expr, **span)["result"])

    def get(self, what: str, **asked: str) -> Any:
        """The data of an API call. Raises PrometheusError."""
        address = f"{self.url}/api/v1/{what}"
        try:
            body = urllib.parse.urlencode(asked)
            with urllib.request.urlopen(f"{address}?{body}", timeout=_ANSWER_SECONDS) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise PrometheusError(f"{address} with {asked} answered {error.code}: {said}") from error
        except OSError as error:
            raise PrometheusError(f"{address} cannot be reached: {error}") from error
