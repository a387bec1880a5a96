"""Tests of the expressions in docs/metrics.md: Prometheus can read them, and they use only documented series."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.metrics.scraped import PAGE
from tests.monitoring.documented import mistakes
from tests.monitoring.prometheus_server import tool


def expressions() -> list[str]:
    table = PAGE.read_text().partition("\n## Questions they answer\n")[2]
    cells = [line.strip("|").split(" | ", 1)[1] for line in table.splitlines() if line.startswith("| ") and "`" in line]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in quoted if re.search(r"[ ({]", text) and not text.startswith("kerneldyno ")]


def test_expressions_ask_for_what_there_is() -> None:
    found = expressions()
    assert len(found) > 25
    assert not [note for expression in found for note in mistakes(expression)]


def test_prometheus_can_read_them(tmp_path: Path) -> None:
    rules = "".join(f"      - record: r:{index}\n        expr: {text!r}\n" for index, text in enumerate(expressions()))
    path = tmp_path / "rules.yml"
    path.write_text(f"groups:\n  - name: questions\n    rules:\n{rules}")
    checked = subprocess.run([tool("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(expressions())} rules found" in checked.stdout
