"""docs/threat-model.md agrees with the corpus and the code: every attack, every finding, and the slack of the clock.

The last two columns of its tables of attacks come from the headers of the candidates in corpus/attacks:

    python -m tests.rpc.test_threat_model_doc     (writes them)
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from kerneldyno.cli.corpus import Entry, entries
from kerneldyno.evaluator.judge.timing import device_time

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/threat-model.md"
EVALUATOR = ROOT / "evaluator_server/kerneldyno/evaluator"
#: `| T01 | what is tried | what stops it | candidates | may end as |`
ATTACK = re.compile(r"^\| ([A-Z]\d\d) \| ([^|]+) \| ([^|]+) \|[^|]*\|[^|]*\|$", re.MULTILINE)
#: ``| `T01` | ``, the first cell of the table of findings.
FINDING = re.compile(r"^\| `([A-Z]\d\d)` \|", re.MULTILINE)
#: In the code that reports findings, each id is a string constant.
ID_IN_CODE = re.compile(r'"([A-Z]\d\d)"')
CATALOGUE = [
    f"{group}{number:02}"
    for group, last in (("T", 30), ("S", 36), ("E", 24), ("R", 15))
    for number in range(1, last + 1)
]


def corpus() -> dict[str, list[Entry]]:
    """Return the attacks by id."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries(ROOT / "corpus/attacks"):
        found[entry.id].append(entry)
    return dict(sorted(found.items()))


def ends(entry: Entry) -> set[str]:
    """Return the ways in which one attack may end, in words."""
    if "CORRECT" not in entry.outcomes:
        return set(entry.outcomes)
    means = "at its true time" if entry.honest else f"labelled {entry.finding}" if entry.finding else "for nothing"
    return {*entry.outcomes} - {"CORRECT"} | {f"CORRECT {means}"}


def row(match: re.Match[str], attacks: dict[str, list[Entry]]) -> str:
    """Return one row of the page, with its last two columns from the corpus."""
    identifier, tried, stopped = match.groups()
    candidates = attacks.get(identifier, [])
    outcomes = ", ".join(sorted(set().union(*map(ends, candidates))))
    return f"| {identifier} | {tried} | {stopped} | `{identifier}_*.py`, {len(candidates)} | {outcomes} |"


def test_every_id_of_the_catalogue_and_of_the_corpus_has_a_row() -> None:
    rows = [match[1] for match in ATTACK.finditer(PAGE.read_text())]
    assert len(rows) == len(set(rows))
    assert set(CATALOGUE) <= set(rows)
    assert set(rows) == set(corpus())


def test_rows_say_what_the_corpus_says() -> None:
    attacks = corpus()
    for match in ATTACK.finditer(PAGE.read_text()):
        assert match[0] == row(match, attacks), "run: python -m tests.rpc.test_threat_model_doc"


def test_every_finding_of_the_code_is_explained_and_no_other() -> None:
    in_code = {
        identifier
        for folder in ("judge", "devices")
        for path in (EVALUATOR / folder).rglob("*.py")
        for identifier in ID_IN_CODE.findall(path.read_text())
    }
    assert {"S19", "T01"} <= in_code
    assert set(FINDING.findall(PAGE.read_text())) == in_code


@pytest.mark.parametrize(
    ("bursts", "factor", "slack"),
    [
        ("warm", device_time._WARM_FACTOR, device_time._WARM_SLACK),
        ("cold", device_time._COLD_FACTOR, device_time._COLD_SLACK),
    ],
)
def test_slack_of_the_clock_is_that_of_the_code(bursts: str, factor: float, slack: float) -> None:
    assert f"| {bursts} | {factor:g} times and {slack * 1e6:g} us |" in PAGE.read_text()


def main() -> None:
    """Write the columns that come from the corpus."""
    attacks = corpus()
    PAGE.write_text(ATTACK.sub(lambda match: row(match, attacks), PAGE.read_text()))


if __name__ == "__main__":
    main()
