"""A real Prometheus with the configuration of deploy/, except for intervals, targets and the waiting time of alerts."""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from deploy.dashboards.reading import Prometheus, PrometheusError
from tests.needed import needs
from tests.waiting import free_port

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = sorted(FOLDER.glob("*.rules.yml"))


def tool(name: str) -> str:
    """Return the path of `prometheus` or `promtool`."""
    return needs(name, package="prometheus")


@functools.cache
def alerts() -> dict[str, dict[str, Any]]:
    """Return all alert rules by name, as they are written."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def impatient(folder: Path) -> list[str]:
    """Return paths of copies of the rules in which no alert waits; expressions and thresholds are those of deploy/."""
    paths = []
    for path in RULES:
        rules = yaml.safe_load(path.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        copy = folder / path.name
        copy.write_text(yaml.safe_dump(rules))
        paths.append(str(copy))
    return paths


@contextmanager
def serving(folder: Path, targets: Mapping[str, Sequence[str]], rules: Sequence[str]) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the targets of each job and evaluates the rules once a second."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    config["rule_files"] = list(rules)
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert targets.keys() <= jobs.keys(), f"deploy/prometheus knows {sorted(jobs)}"
    config["scrape_configs"] = [jobs[job] | {"static_configs": [{"targets": list(t)}]} for job, t in targets.items()]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(tool("prometheus"), f"--config.file={folder / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        server = Prometheus(f"http://{address}")
        _wait(server, process, folder / "prometheus.log")
        yield server
    finally:
        process.kill()  # its data is not needed any more
        process.wait()


def _wait(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None, log.read_text()
        try:
            server.query("vector(1)")
            return
        except PrometheusError:
            assert time.monotonic() < deadline, f"Prometheus is not ready after 30 s:\n{log.read_text()}"
            time.sleep(0.1)
