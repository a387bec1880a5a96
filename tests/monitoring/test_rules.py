"""Tests of the alert rules: promtool's checks, its unit tests of every alert, and the runbook of each alert."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring import documented
from tests.monitoring.prometheus_server import FOLDER, ROOT, RULES, alerts, tool

UNIT_TESTS = sorted(Path(__file__).parent.glob("rules/*.test.yml"))
RUNBOOKS = ROOT / "docs" / "monitoring.md"
LINK = "https://github.com/OWNER/kerneldyno/blob/main/docs/monitoring.md#"

each = pytest.mark.parametrize("alert", alerts())


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, timeout=120)


def test_promtool_finds_nothing_in_the_rules() -> None:
    done = promtool("check", "rules", *map(str, RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_in_the_configuration(tmp_path: Path) -> None:
    # The configuration has the path of the rules in the container.
    config = (FOLDER / "prometheus.yml").read_text()
    assert "/etc/prometheus/*.rules.yml" in config
    copy = tmp_path / "prometheus.yml"
    copy.write_text(config.replace("/etc/prometheus", str(FOLDER)))
    done = promtool("check", "config", str(copy))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_only_then(path: Path) -> None:
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_never_fires_is_noticed(tmp_path: Path) -> None:
    """The unit tests can fail: they do so when one threshold is out of reach."""
    (tmp_path / "broken.rules.yml").write_text(
        RULES[0].read_text().replace("kerneldyno_gpu_up == 0", "kerneldyno_gpu_up == 2")
    )
    (path,) = [path for path in UNIT_TESTS if path.name == "gpus.test.yml"]
    unit_test = re.sub(r"rule_files: .*", "rule_files: [broken.rules.yml]", path.read_text())
    (tmp_path / "broken.test.yml").write_text(unit_test)
    done = promtool("test", "rules", str(tmp_path / "broken.test.yml"))
    assert done.returncode != 0
    assert "KernelDynoGpuLost" in done.stdout + done.stderr


@each
def test_each_alert_is_seen_to_fire_and_not_to(alert: str) -> None:
    checks = [check for test in _unit_tests() for check in test["promql_expr_test"] if f'"{alert}"' in check["expr"]]
    fired = [sample["labels"] for check in checks for sample in check["exp_samples"]]
    assert fired, f"{alert} is never seen to fire"
    assert any(not check["exp_samples"] for check in checks), f"{alert} is never seen not to fire"
    # The alert has every label that its texts name.
    rule = alerts()[alert]
    texts = " ".join(rule["annotations"].values())
    named = set(re.findall(r"\$labels\.(\w+)", texts))
    assert all(set(re.findall(r"(\w+)=", labels)) >= named for labels in fired if "absent" not in rule["expr"])


@each
def test_each_alert_asks_for_documented_series_and_labels(alert: str) -> None:
    assert documented.mistakes(alerts()[alert]["expr"]) == []


@each
def test_each_alert_says_what_it_means_and_links_to_a_runbook(alert: str) -> None:
    rule = alerts()[alert]
    assert alert.startswith("KernelDyno")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    assert rule["annotations"]["runbook_url"] == LINK + alert.lower()
    section = _runbooks().get(alert, "")
    assert section, f"docs/monitoring.md has no runbook for {alert}"
    assert section.strip().startswith(f"*{rule['labels']['severity']}*. "), (
        f"the runbook has another severity than {alert}"
    )
    assert "**Do**" in section, f"the runbook of {alert} does not say what to do"
    (listed,) = re.findall(
        rf"^\| (\w+) \| .*\[{alert.removeprefix('KernelDyno')}\]\(#", RUNBOOKS.read_text(), re.MULTILINE
    )
    assert listed == rule["labels"]["severity"]


def test_there_is_no_runbook_without_an_alert() -> None:
    assert _runbooks().keys() == alerts().keys()


def test_the_operators_object_is_the_same_rules(tmp_path: Path) -> None:
    """The script of docs/monitoring.md runs with a fake kubectl that records its arguments and input."""
    script = RUNBOOKS.read_text().split("test_the_operators_object_is_the_same_rules -->\n```sh\n")[1].split("```")[0]
    (tmp_path / "kubectl").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/said\ntest "$1" = create || cat >> {tmp_path}/given\n'
    )
    (tmp_path / "kubectl").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", script], cwd=ROOT, env={"PATH": path}, check=True, timeout=30)
    made = yaml.safe_load((tmp_path / "given").read_text())
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert made["metadata"] == {"name": "kerneldyno", "labels": {"release": "kube-prometheus-stack"}}
    assert made["spec"] == yaml.safe_load(RULES[0].read_text())
    (folder,) = re.findall(r"--from-file=(\S+)", (tmp_path / "said").read_text())
    assert len(list((ROOT / folder).glob("*.json"))) == 4


def test_values_that_rules_single_out_are_documented() -> None:
    """A regular expression with a value that does not exist would exclude nothing, and nobody would notice."""
    text = RULES[0].read_text()
    for label, listed in re.findall(r'(\w+)[!=]~"([^"]+)"', text):
        for value in listed.split("|"):
            if re.fullmatch(r"\w+", value):
                assert value in documented.values(label), f"{label}={value}"


@functools.cache
def _unit_tests() -> list[dict[str, Any]]:
    return [test for path in UNIT_TESTS for test in yaml.safe_load(path.read_text())["tests"]]


@functools.cache
def _runbooks() -> dict[str, str]:
    """Return the section of each alert in docs/monitoring.md."""
    sections = re.split(r"^### ", RUNBOOKS.read_text(), flags=re.MULTILINE)[1:]
    return {
        title: body
        for title, _, body in (section.partition("\n") for section in sections)
        if title.startswith("Kernel")
    }
