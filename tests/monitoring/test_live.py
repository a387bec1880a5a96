"""Tests of dashboards and alerts with a real Prometheus that scrapes a real scheduler and evaluator under load.

The first tests ask every query of every panel, over the time of the load. The next ones break things, one after the
other, and expect the alerts of deploy/: with their expressions and thresholds, without their waiting time. GPUs are
made up (gpu_exporter.py). The tests that break things depend on their order, mildest first.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from deploy.dashboards import pictures
from deploy.dashboards.reading import Panel, Prometheus, dashboards, filled, panels
from kerneldyno.client import Client
from kerneldyno.client.errors import KernelDynoError
from kerneldyno.v1.evaluation_pb2 import DeviceSelector
from tests.monitoring.live import (
    MAX_QUEUED,
    Cluster,
    candidate,
    candidates,
    cheating_turns,
    cluster,
    hopeless_turns,
    request,
    turns,
)
from tests.monitoring.prometheus_server import impatient, serving, tool

pytestmark = pytest.mark.slow

#: The values that Grafana would insert: all choices, and a window of several scrapes.
VARIABLES = {"instance": ".+", "device": ".+", "__rate_interval": "15s", "__range": "60s"}
PANELS = [
    pytest.param(panel, id=f"{name.removeprefix('kerneldyno-')}-{panel.title}")
    for name, dashboard in dashboards().items()
    for panel in panels(dashboard)
    if panel.kind != "row"
]

VARIABLES_ASKED = [
    pytest.param(variable, id=f"{name.removeprefix('kerneldyno-')}-{variable['name']}")
    for name, dashboard in dashboards().items()
    for variable in dashboard["templating"]["list"]
    if variable["type"] == "query"
]


@dataclass
class Watched:
    """The services, their Prometheus, when it began, and the times of the load (Unix times); `idle` is before it."""

    cluster: Cluster
    prometheus: Prometheus
    begun: float
    idle: float
    start: float
    end: float

    @contextmanager
    def expecting(self, *alerts: str, seconds: float = 20.0) -> Iterator[None]:
        """Wait, after the block, until all these alerts have fired since its start. None may fire before it."""
        begun, fired = time.time(), dict[str, dict[str, Any]]()
        firing = self.prometheus.query('ALERTS{alertstate="firing"}')
        already = {one["metric"]["alertname"] for one in firing} & {f"KernelDyno{alert}" for alert in alerts}
        assert not already, f"{already} fire already"
        yield
        deadline = time.monotonic() + seconds
        while missing := {f"KernelDyno{alert}" for alert in alerts} - fired.keys():
            assert time.monotonic() < deadline, f"{missing} did not fire; {sorted(fired)} did"
            time.sleep(0.25)
            firing = [alert for alert in self.prometheus.get("alerts")["alerts"] if alert["state"] == "firing"]
            fired |= {alert["labels"]["alertname"]: alert for alert in firing}
            span = max(1.0, time.time() - begun)
            past = self.prometheus.query(f'last_over_time(ALERTS{{alertstate="firing"}}[{math.ceil(span)}s])')
            fired |= {one["metric"]["alertname"]: {} for one in past if one["metric"]["alertname"] not in fired}
        for alert in fired.values():
            for text in alert.get("annotations", {}).values():
                assert not re.search("<(error|no value)", text), text


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """All services, after one load."""
    tool("prometheus")  # stops here if Prometheus is missing, before anything starts
    folder = tmp_path_factory.mktemp("monitoring")
    with cluster(folder) as running, serving(folder, running.targets, impatient(folder)) as prometheus:
        begun = time.time()
        while not prometheus.query("count(up == 1) == 4"):  # so that Prometheus sees the counters at 0
            assert time.time() < begun + 20
            time.sleep(0.2)
        while prometheus.query("ALERTS"):  # alerts from before the services were up must end
            time.sleep(0.2)
        idle = _idle_since(prometheus)
        start = time.time()
        with Client(running.address) as client:
            assert len(list(client.evaluate(candidates("load")))) == 13
            assert len(list(client.rewards(turns("load")))) == 16
        said = f"```python\n{candidate('pass', 'gateway')}\n```"
        assert running.ask_gateway("/rm", prompt="", response=said, label="mine") == 200
        time.sleep(2)  # judges report once a second, and Prometheus scrapes as often
        yield Watched(running, prometheus, begun, idle, start, time.time())


def _idle_since(prometheus: Prometheus) -> float:
    """Wait until the rates of turns are known and are 0, and return that time."""
    deadline = time.monotonic() + 60
    counters = ("kerneldyno_turns_total", "kerneldyno_reward_count")
    while not all(prometheus.query(f"sum(rate({name}[15s])) == 0") for name in counters):
        assert time.monotonic() < deadline, "counters of turns are not there before the first turn"
        time.sleep(0.2)
    return time.time()


@pytest.mark.parametrize("panel", PANELS)
def test_every_query_of_every_panel_has_data(panel: Panel, watched: Watched) -> None:
    for target in panel.targets:
        expr = filled(target.expr, VARIABLES)
        found = watched.prometheus.query_range(expr, watched.start, watched.end, 1)
        numbers = [float(value) for series in found for _, value in series["values"]]
        assert any(math.isfinite(number) for number in numbers), f"{expr}: {found[:2]}"


@pytest.mark.parametrize("panel", PANELS)
def test_no_panel_shows_nan_while_nothing_happens(panel: Panel, watched: Watched) -> None:
    for target in panel.targets:
        expr = filled(target.expr, VARIABLES)
        found = watched.prometheus.query(expr, watched.idle)
        assert [one for one in found if math.isnan(float(one["value"][1]))] == [], f"{expr}: `no data` is what there is"


@pytest.mark.parametrize("variable", VARIABLES_ASKED)
def test_variables_have_something_to_choose(variable: dict[str, Any], watched: Watched) -> None:
    metric, _, label = variable["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
    found = watched.prometheus.query(f"group by ({label}) ({filled(metric, VARIABLES)})", watched.end)
    assert len({one["metric"][label] for one in found}) >= 2, "two evaluators, three devices"


def test_what_was_done_is_what_is_shown(watched: Watched) -> None:
    """The numbers behind the panels are those of the load: 13 evaluations, 16 turns, and one turn by the gateway."""
    at = watched.end
    (verdicts,) = watched.prometheus.query("sum(kerneldyno_outcomes_total)", at)
    (turned,) = watched.prometheus.query("sum(kerneldyno_turns_total)", at)
    mix = watched.prometheus.query("sum by (outcome) (kerneldyno_turns_total) > 0", at)
    (rejected,) = watched.prometheus.query('sum(kerneldyno_findings_total{finding="S19", severity="reject"})', at)
    assert float(turned["value"][1]) == 17
    assert {one["metric"]["outcome"]: float(one["value"][1]) for one in mix} == {
        "CORRECT": 5,
        "INCORRECT": 4,
        "RUNTIME_ERROR": 4,
        "INVALID": 4,
    }
    (again,) = watched.prometheus.query(
        "sum(kerneldyno_remeasurements_total)", at
    )  # a noisy machine may cause one remeasurement
    assert float(verdicts["value"][1]) == 13 + 17 + float(again["value"][1])
    assert float(rejected["value"][1]) == 1


def test_nothing_fires_while_all_is_well(watched: Watched) -> None:
    """An alert may fire for a moment, at a late scrape or while a job is placed: the rules' waiting time is for this.

    Two alerts are left out, because a slow machine or disk says nothing about the rules. So are those of a service whose
    page takes more than a second, for as long as Prometheus gives it up.
    """
    theirs = 'ALERTS{alertstate="firing", alertname!~"KernelDyno(ProcessSlow|JournalSlow)"}'
    theirs += " unless on (job, instance) (up == 0)"
    fired = watched.prometheus.query_range(theirs, watched.start, watched.end, 1)
    longest = max(2.0, 0.3 * (watched.end - watched.start))
    assert [series["metric"] for series in fired if len(series["values"]) > longest] == []


def test_pictures_can_be_drawn(watched: Watched, tmp_path: Path) -> None:
    """It draws one panel for each pair of kind and unit, because whole dashboards take seconds each."""
    every = [panel for dashboard in dashboards().values() for panel in panels(dashboard)]
    chosen = list({(panel.kind, panel.unit): panel for panel in every}.values())
    raw = [{**panel.raw, "gridPos": {"x": 0, "y": 8 * at, "w": 12, "h": 8}} for at, panel in enumerate(chosen)]
    picture = pictures.draw(watched.prometheus, {"title": "All kinds", "panels": raw}, watched.start, watched.end)
    said = {text.get_text() for axes in picture.axes for text in axes.texts}
    assert {panel.title for panel in chosen if panel.kind != "row"} <= said
    assert "no data" not in said
    pictures.save(picture, tmp_path / "picture.png")
    with Image.open(tmp_path / "picture.png") as image:
        assert image.size > (1000, 1000)


def test_gpus_that_fail(watched: Watched) -> None:
    """Each failure concerns only the first GPU."""
    alerts = "GpuHot", "GpuThrottled", "GpuMemoryFull", "GpuMemoryErrors", "GpuFault", "SandboxWeaker"
    # A GPU is throttled a fifth of the time only when that has lasted a quarter of the time before.
    with watched.expecting(*alerts, seconds=20 + (time.time() - watched.begun) / 4):
        for line in ("hot", "full", "ecc", "xid 79", "xid 31", "weak"):
            watched.cluster.tell_gpus(line)
    firing = watched.prometheus.query('ALERTS{alertname=~"KernelDyno(Gpu.*|Sandbox.*)", alertstate="firing"}')
    assert {one["metric"]["device"] for one in firing} == {"cuda:0"}
    assert {one["metric"]["xid"] for one in firing if "xid" in one["metric"]} == {"79"}
    with watched.expecting("GpuLost"):
        watched.cluster.tell_gpus("lost")


def test_broken_references_and_cheating(watched: Watched) -> None:
    with (
        watched.expecting("ReferenceErrors", "TurnsWithoutReward", "Cheating"),
        Client(watched.cluster.address) as client,
    ):
        answers = client.rewards([*hopeless_turns("h", 6), *cheating_turns("c", 12)], retries=0, on_missing="yield")
        assert sum(1 for _ in answers) == 18


def test_a_judge_that_dies(watched: Watched) -> None:
    with watched.expecting("DeviceNotReady"):
        watched.cluster.kill_judge()


def test_a_scheduler_that_runs_out_of_files(watched: Watched) -> None:
    scheduler = psutil.Process(watched.cluster.scheduler.process.pid)
    limits = scheduler.rlimit(psutil.RLIMIT_NOFILE)
    with watched.expecting("FilesRunOut"):
        scheduler.rlimit(psutil.RLIMIT_NOFILE, (int(scheduler.num_fds() / 0.9) + 1, limits[1]))
    scheduler.rlimit(psutil.RLIMIT_NOFILE, limits)


def test_work_that_fits_no_node(watched: Watched) -> None:
    """Such work waits while nodes serve, and fails when its time is up."""
    with watched.expecting("QueueStuck", "InfrastructureErrors"), Client(watched.cluster.address) as client:
        nowhere = [request(f"nowhere-{i}") for i in range(4)]
        for one in nowhere:
            one.device.CopyFrom(DeviceSelector(model="no such device"))
        assert {result.infrastructure_error.cause for result in client.evaluate(nowhere)} == {"NO_MATCHING_DEVICE"}


def test_a_node_that_dies(watched: Watched) -> None:
    with watched.expecting("EvaluatorDown", "NodesLost", "NoNodes"):
        watched.cluster.evaluator.process.kill()


def test_more_work_than_may_wait(watched: Watched) -> None:
    with watched.expecting("QueueFull"), Client(watched.cluster.address) as client:
        waiting = [request(f"many-{i}") for i in range(MAX_QUEUED + 5)]
        assert len(list(client.evaluate(waiting, timeout=2.5))) == len(waiting)


def test_nodes_that_lose_their_attempts(watched: Watched) -> None:
    """Both works kill the judges of these nodes: each work fails three times, and a node fails three times in a row."""
    dying = [request(f"dies-{i}") for i in range(2)]
    for one in dying:
        one.kernel_code = f"outcome=INFRASTRUCTURE_ERROR cause=JUDGE_DIED id={one.id}"
    command = [sys.executable, "-m", "kerneldyno.testing", "--scheduler", watched.cluster.address]
    with subprocess.Popen([*command, "--node-id", "x", "--nodes", "2"], stdout=subprocess.PIPE, text=True) as nodes:
        try:
            assert nodes.stdout is not None
            assert "ready" in nodes.stdout.readline()
            with (
                watched.expecting("Retries", "NodeQuarantined", "WorkQuarantined"),
                Client(watched.cluster.address) as client,
            ):
                ended = [client.evaluate_once(one) for one in dying]
            assert {result.infrastructure_error.cause for result in ended} == {"POISON"}
        finally:
            nodes.kill()


def test_a_disk_that_is_full(watched: Watched) -> None:
    scheduler = psutil.Process(watched.cluster.scheduler.process.pid)
    limits = scheduler.rlimit(psutil.RLIMIT_FSIZE)
    with watched.expecting("JournalStalled"):
        scheduler.rlimit(psutil.RLIMIT_FSIZE, (1, limits[1]))
        with Client(watched.cluster.address, call_timeout=2, reconnect_timeout=0) as client, suppress(KernelDynoError):
            client.evaluate_once(request("full"), timeout=2)
    scheduler.rlimit(psutil.RLIMIT_FSIZE, limits)


def test_a_scheduler_that_dies(watched: Watched) -> None:
    with watched.expecting("SchedulerDown", "GatewayErrors"):
        watched.cluster.scheduler.process.kill()
        with ThreadPoolExecutor(6) as at_once:
            assert set(at_once.map(watched.cluster.ask_gateway, ["/health"] * 6)) == {503}


def test_a_gateway_that_dies(watched: Watched) -> None:
    with watched.expecting("GatewayDown"):
        watched.cluster.gateway.kill()
