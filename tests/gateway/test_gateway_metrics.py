"""docs/gateway.md lists exactly the metrics that the gateway registers."""

from __future__ import annotations

import re
from pathlib import Path

from kerneldyno.gateway.metrics import Metrics

DOC = Path(__file__).parents[2] / "docs" / "gateway.md"


def test_the_documentation_lists_every_metric() -> None:
    metrics = Metrics(lambda: 3)
    with metrics.request("/rm") as counted:
        counted.status = 200
    page = metrics.page()
    known = {
        (f"{name}_total" if kind == "counter" and not name.endswith("_total") else name, kind)
        for name, kind in re.findall(r"^# TYPE (kerneldyno_\w+) (\w+)$", page, re.MULTILINE)
        if not name.endswith("_created")
    }
    table = re.findall(r"^\| `(kerneldyno_gateway_\w+)` \| (\w+) \|", DOC.read_text(), re.MULTILINE)
    assert known == set(table)
    assert "kerneldyno_gateway_turns_in_flight 3.0" in page
