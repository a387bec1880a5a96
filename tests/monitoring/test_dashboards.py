"""Tests of the committed dashboards against their source, Grafana's own types and docs/metrics.md."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.dashboards import __main__ as command
from deploy.dashboards import pictures
from deploy.dashboards.reading import FOLDER, Panel, dashboards, filled, panels
from tests.monitoring import documented

ALL = dashboards()
each = pytest.mark.parametrize("name", ALL)


def drawn(name: str) -> list[Panel]:
    return [panel for panel in panels(ALL[name]) if panel.kind != "row"]


def test_the_files_are_what_the_source_says() -> None:
    assert command.stale() == []
    assert command.main(["--check"]) == 0


def test_a_stale_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("deploy.dashboards.reading.FOLDER", "deploy.dashboards.__main__.FOLDER"):
        monkeypatch.setattr(module, tmp_path)
    assert command.main([]) == 0
    assert command.main(["--check"]) == 0
    (tmp_path / "kerneldyno-fleet.json").write_text("{}")
    (tmp_path / "gone.json").write_text("{}")
    capsys.readouterr()
    assert command.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "kerneldyno-fleet.json is stale: run `make dashboards`" in said
    assert "gone.json is not generated any more" in said


def test_there_are_the_four() -> None:
    names = {"kerneldyno-fleet", "kerneldyno-pipeline", "kerneldyno-training", "kerneldyno-node"}
    assert ALL.keys() == names
    assert all(dashboard["uid"] == name for name, dashboard in ALL.items())
    assert len({dashboard["title"] for dashboard in ALL.values()}) == len(ALL)


@each
def test_grafanas_types_know_all_that_is_in_it(name: str) -> None:
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(ALL[name]), cls=JSONEncoder))
    assert list(_lost(ALL[name], again)) == []


@each
def test_it_says_when_it_shows_and_where_from(name: str) -> None:
    dashboard = ALL[name]
    assert dashboard["time"] == {"from": "now-1h", "to": "now"}
    assert dashboard["refresh"] == "30s"
    assert dashboard["description"]
    assert dashboard["schemaVersion"] >= 39
    chosen = dashboard["templating"]["list"][0]
    assert (chosen["type"], chosen["name"], chosen["query"]) == ("datasource", "datasource", "prometheus")
    asked = {json.dumps(place) for place in _datasources(dashboard["panels"])}
    assert asked == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}


@each
def test_panels_have_all_that_a_reader_needs(name: str) -> None:
    titles = [panel.title for panel in drawn(name)]
    assert len(set(titles)) == len(titles), "two panels of one dashboard have one title"
    for panel in drawn(name):
        said = panel.raw["description"]
        assert said.endswith("."), f"{panel.title}: a description is a sentence"
        assert panel.unit, f"{panel.title} has no unit"
        assert panel.targets, f"{panel.title} asks nothing"
        refs = [target.ref for target in panel.targets]
        assert len(set(refs)) == len(refs), panel.title


@each
def test_ids_are_unique_and_no_panels_overlap(name: str) -> None:
    placed = panels(ALL[name])
    assert len({panel.id for panel in placed}) == len(placed)
    taken: dict[tuple[int, int], str] = {}
    for panel in placed:
        assert panel.x >= 0
        assert panel.x + panel.width <= 24, f"{panel.title} is wider than the screen"
        for cell in itertools.product(range(panel.x, panel.x + panel.width), range(panel.y, panel.y + panel.height)):
            assert cell not in taken, f"{panel.title} lies on {taken[cell]}"
            taken[cell] = panel.title


@each
def test_queries_ask_for_documented_series_and_labels(name: str) -> None:
    notes = [
        f"{panel.title}: {note}"
        for panel in drawn(name)
        for target in panel.targets
        for note in documented.mistakes(target.expr)
    ]
    for variable in ALL[name]["templating"]["list"][1:]:
        notes += documented.mistakes(variable["query"].rpartition(",")[0])
    assert notes == []


@each
def test_variables_are_declared_and_legends_name_labels(name: str) -> None:
    declared = {variable["name"] for variable in ALL[name]["templating"]["list"]}
    given = dict.fromkeys(declared | {"__rate_interval", "__range"}, "x")
    labels = (
        {label for metric in documented.metrics().values() for label in metric.labels} | documented.SCRAPED | {"le"}
    )
    for panel in drawn(name):
        for target in panel.targets:
            assert filled(target.expr, given)
            assert set(re.findall(r"\{\{(\w+)\}\}", target.legend)) <= labels, f"{panel.title}: {target.legend}"


def test_an_undocumented_series_or_label_is_noticed() -> None:
    assert documented.mistakes("rate(kerneldyno_outcomes_total[5m])") == []
    assert documented.mistakes("kerneldyno_unheard_of") == ["kerneldyno_unheard_of is not in docs/metrics.md"]
    (note,) = documented.mistakes('kerneldyno_nodes{colour="red"}')
    assert note == "kerneldyno_nodes has no label colour"
    assert documented.mistakes("kerneldyno_reward") == ["kerneldyno_reward: kerneldyno_reward is a histogram"]
    assert documented.mistakes("sum by (colour) (kerneldyno_running)") == ["nothing has the label colour"]


def test_pictures_need_a_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pictures.main(["--prometheus", "http://127.0.0.1:9", "--out", str(tmp_path)]) == 1
    assert "http://127.0.0.1:9/api/v1/query_range cannot be reached" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_compose_mounts_them_where_grafana_looks() -> None:
    compose = yaml.safe_load((FOLDER.parents[1] / "compose.yaml").read_text())
    mounted = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    provisioning = yaml.safe_load((FOLDER.parent / "provisioning" / "dashboards" / "kerneldyno.yaml").read_text())
    assert mounted["./grafana/dashboards"] == provisioning["providers"][0]["options"]["path"]


def _lost(value: Any, again: Any, path: str = "") -> Iterator[str]:
    """Yield the paths in `value` that Grafana's types have lost or changed in `again`. They may add defaults."""
    if isinstance(value, dict) and isinstance(again, dict):
        for key, inner in value.items():
            yield from _lost(inner, again.get(key), f"{path}/{key}")
    elif isinstance(value, list) and isinstance(again, list) and len(value) == len(again):
        for index, (inner, other) in enumerate(zip(value, again, strict=True)):
            yield from _lost(inner, other, f"{path}[{index}]")
    elif value != again:
        yield path


def _datasources(value: Any) -> list[Any]:
    """Return all data sources that are named anywhere in `value`."""
    if isinstance(value, list):
        return [found for item in value for found in _datasources(item)]
    if isinstance(value, dict):
        here = [value["datasource"]] if value.get("datasource") else []
        return here + [found for item in value.values() for found in _datasources(item)]
    return []
