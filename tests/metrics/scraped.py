"""Readers of metrics pages in Prometheus' format and of the tables of docs/metrics.md."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.documented import PAGE
from tests.monitoring.prometheus_server import tool

#: Name, type, labels.
Row = tuple[str, str, frozenset[str]]
#: Name and labels with their values.
Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Scrape:
    """A metrics page."""

    text: str
    rows: frozenset[Row]
    values: dict[Series, float]

    @classmethod
    def read(cls, text: str) -> Scrape:
        """Parse a page."""
        rows, values = set(), {}
        for family in text_string_to_metric_families(text):
            assert family.documentation, f"{family.name} has no help"
            if not family.samples:  # it has no values yet: the page has only its name
                continue
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
            assert len(labels) == 1, f"series of {name} differ in their labels: {labels}"
            rows.add((name, family.type, *labels))
            for sample in family.samples:
                series = (sample.name, frozenset(sample.labels.items()))
                assert series not in values, f"{series} is there twice"
                values[series] = sample.value
        return cls(text, frozenset(rows), values)

    @classmethod
    def of(cls, url: str) -> Scrape:
        """Fetch and parse a page."""
        with urllib.request.urlopen(url, timeout=10) as response:
            return cls.read(response.read().decode())

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the series of this name whose labels include `labels`."""
        found = [
            value
            for (known, its), value in self.values.items()
            if known == name and labels.items() <= dict(its).items()
        ]
        assert found, f"there is no {name} with {labels}"
        return sum(found)


def complaints(page: Scrape) -> str:
    """Return the complaints of `promtool check metrics` about a page: empty if there are none."""
    command = [tool("promtool"), "check", "metrics"]
    found = subprocess.run(command, input=page.text, capture_output=True, text=True, check=False)
    return found.stdout + found.stderr + (f"exit status {found.returncode}" if found.returncode else "")


def documented(*headings: str) -> frozenset[Row]:
    """Return the rows of the tables below these headings, each up to the next heading of any depth."""
    rows: set[Row] = set()
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif section in headings and line.startswith("| `"):
            name, kind, labels, meaning, missing = (cell.strip() for cell in line.strip("|").split("|"))
            assert meaning.endswith("."), f"{name}: a meaning is a sentence"
            assert not missing or missing.endswith("."), f"{name}: what is not counted is a sentence"
            row = (name.strip("`"), kind, frozenset(re.findall(r"`(\w+)`", labels)))
            assert row not in rows, f"{name} is there twice"
            rows.add(row)
    assert rows, f"there is no table below {headings}"
    return frozenset(rows)


def documented_values() -> dict[str, set[str]]:
    """Return all values of each label that has a closed set, by label. Several rows for one label are joined."""
    text = PAGE.read_text().partition("\n## Labels")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = {}
    for label, values in re.findall(r"^\| `(\w+)`[^|]*\| (.*) \|$", text, re.MULTILINE):
        found.setdefault(label, set()).update(re.findall(r"`([A-Za-z0-9_]+)`", values))
    assert len(found) > 15, "the table of labels is not read"
    return found
