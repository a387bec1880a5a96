"""Tests of the report: it keeps the text that people wrote, and the sections of rows that were not run."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.report import BEGIN, END, Outcome, write
from tests.chaos.scenario import Figure


def outcome(rows: tuple[int, ...], figure: str) -> Outcome:
    return Outcome(rows, f"Title of {rows[0]}", [Figure(rows[0], "1", "a | b", figure, "0", figure == "0")], 1.5)


def test_sections_are_replaced_one_by_one_and_stay_in_order(tmp_path: Path) -> None:
    file = tmp_path / "reliability.md"
    file.write_text(f"# By hand\n\n{BEGIN}\n{END}\n\nAlso by hand.\n")
    write(file, [outcome((12, 13), "0"), outcome((4, 5), "7")], scale=1, seed=3)
    write(file, [outcome((4, 5), "0"), outcome((22,), "5")], scale=0.1, seed=9)
    text = file.read_text()
    assert text.startswith("# By hand\n")
    assert text.endswith("Also by hand.\n")
    assert [line for line in text.splitlines() if line.startswith("###")] == [
        "### Rows 4, 5: Title of 4",
        "### Rows 12, 13: Title of 12",
        "### Row 22: Title of 22",
    ]
    assert "--rows 4,5 --scale 0.1 --seed 9" in text
    assert "--rows 12,13 --scale 1 --seed 3" in text
    assert "| 4 | 1 | a \\| b | 0 | 0 | pass |" in text
    assert "| 22 | 1 | a \\| b | 5 | 0 | **miss** |" in text
    assert "| 7 |" not in text
