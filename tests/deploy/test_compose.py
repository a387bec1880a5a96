"""The compose files: the Compose specification's schema, files, options, published ports, and the seccomp profile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerneldyno.scheduler.__main__ import STORE_VARIABLE
from tests.deploy.deploy_files import DEPLOY, accepted, load, value

COMPOSE = DEPLOY / "compose"
FILES = ("compose.yaml", "per-gpu.yaml", "namespaces.yaml", "per-gpu-namespaces.yaml", "two-schedulers.yaml")


def test_they_keep_to_the_specification(tmp_path: Path) -> None:
    assert sorted(FILES) == sorted(file.name for file in COMPOSE.glob("*.yaml"))
    copies = [tmp_path / name for name in FILES]
    for copy in copies:  # the schema's reader knows no tags of Compose
        copy.write_text(yaml.safe_dump(load(COMPOSE / copy.name)[0]))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, *copies], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_what_they_name_is_there() -> None:
    (compose,) = load(COMPOSE / "compose.yaml")
    for name, service in compose["services"].items():
        if build := service.get("build"):
            assert (COMPOSE / build["context"] / build["dockerfile"]).is_file(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (COMPOSE / source).exists() if source.startswith(".") else source in compose["volumes"], volume
        assert set(service["networks"]) <= set(compose["networks"])
    (namespaces,) = load(COMPOSE / "namespaces.yaml")
    (profile,) = (
        option.partition("=")[2]
        for option in namespaces["services"]["evaluator"]["security_opt"]
        if option.startswith("seccomp=")
    )
    assert (COMPOSE / profile).is_file()


def test_the_build_cache_is_on_a_volume() -> None:
    (compose,) = load(COMPOSE / "compose.yaml")
    fields = compose["services"]["evaluator"]
    cache = value(fields["command"], "--build-cache")
    assert cache is not None
    assert any(cache.startswith(f"{volume.split(':')[1]}/") for volume in fields["volumes"])


@pytest.mark.parametrize("service", ["scheduler", "evaluator"])
def test_services_know_their_options_and_have_time_to_drain(service: str) -> None:
    (compose,) = load(COMPOSE / "compose.yaml")
    fields = compose["services"][service]
    options = [word.replace("${KERNELDYNO_SANDBOX:-require}", "require") for word in fields["command"]]
    assert accepted(service, options)
    default = {"scheduler": 30, "evaluator": 60}[service]
    assert int(fields["stop_grace_period"].removesuffix("s")) > float(value(options, "--drain-timeout") or default) + 5
    assert fields["cap_drop"] == ["ALL"]


def test_two_schedulers_share_a_store_and_everybody_knows_both() -> None:
    (fields,) = load(COMPOSE / "two-schedulers.yaml")
    services = fields["services"]
    schedulers = [name for name in services if name.startswith("scheduler")]
    assert len(schedulers) == 2
    for name in schedulers:
        service = services[name]
        assert accepted("scheduler", service["command"])
        assert value(service["command"], "--store") is None, "a password on a command line can be read by anybody"
        assert service["environment"][STORE_VARIABLE].startswith("postgresql://")
        assert value(service["command"], "--advertise") == f"{name}:50051"
        assert service["depends_on"] == {"database": {"condition": "service_healthy"}}
        assert "store" in service["networks"]
        assert "healthcheck" not in service, "the image's own is right for a standby, too"
    options = [word.replace("${KERNELDYNO_SANDBOX:-require}", "require") for word in services["evaluator"]["command"]]
    assert accepted("evaluator", options)
    assert value(options, "--scheduler") == ",".join(f"{name}:50051" for name in schedulers)
    assert services["database"]["networks"] == ["store"]
    assert "ports" not in services["database"]


def test_only_loopback_is_published() -> None:
    files = [load(COMPOSE / name)[0] for name in ("compose.yaml", "two-schedulers.yaml")]
    compose = files[0]
    published = [port for file in files for service in file["services"].values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert "ports" not in compose["services"]["evaluator"]


def test_prometheus_scrapes_where_the_services_show_their_metrics() -> None:
    (compose,) = load(COMPOSE / "compose.yaml")
    (prometheus,) = load(DEPLOY / "prometheus/prometheus.yml")
    targets = {
        job["job_name"]: target
        for job in prometheus["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    ports = {}
    for service in ("scheduler", "evaluator"):
        shown = value(compose["services"][service]["command"], "--metrics")
        assert shown is not None
        ports[service] = shown.rpartition(":")[2]
        assert targets[f"kerneldyno-{service}"] == f"{service}:{ports[service]}"
    (job,) = (job for job in prometheus["scrape_configs"] if job["job_name"] == "kerneldyno-evaluator")
    (found,) = job["dns_sd_configs"]
    assert found["names"] == list(per_gpu())[1:]
    assert found["port"] == int(ports["evaluator"])


def per_gpu() -> dict[str, Any]:
    """Return the services of per-gpu.yaml that evaluate, in the order of their GPUs."""
    (fields,) = load(COMPOSE / "per-gpu.yaml")
    return {str(name): service for name, service in fields["services"].items()}


def test_each_gpu_has_an_evaluator_with_a_name_and_processors_of_its_own() -> None:
    assert list(per_gpu()) == ["evaluator", *(f"evaluator-{gpu}" for gpu in range(1, 8))]
    for gpu, service in enumerate(per_gpu().values()):
        assert service["hostname"] == f"${{KERNELDYNO_NODE_ID:-compose}}-{gpu}"
        assert service["cpuset"] == f"${{KERNELDYNO_CPUS_{gpu}:-}}"
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "device_ids": [str(gpu)], "capabilities": ["gpu"]}
        assert gpu == 0 or service["extends"] == {"file": "compose.yaml", "service": "evaluator"}
    # Lists are appended to those of the first file, which has all GPUs, unless the tag says otherwise.
    assert (COMPOSE / "per-gpu.yaml").read_text().count("devices: !override ") == len(per_gpu())
    (compose,) = load(COMPOSE / "compose.yaml")
    assert value(compose["services"]["evaluator"]["command"], "--node-id") is None  # the host's name


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_profile_starts_as_many_evaluators_as_it_says(count: int) -> None:
    chosen = [
        name for name, service in per_gpu().items() if f"{count}-gpus" in service.get("profiles", [f"{count}-gpus"])
    ]
    assert chosen == list(per_gpu())[:count]


def test_namespaces_are_for_all_of_them() -> None:
    (fields,) = load(COMPOSE / "per-gpu-namespaces.yaml")
    extended = {"extends": {"file": "namespaces.yaml", "service": "evaluator"}}
    assert fields["services"] == dict.fromkeys(list(per_gpu())[1:], extended)


def test_compose_merges_them() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, timeout=60).returncode:
        pytest.skip("Docker Compose is not installed")
    files = [word for name in FILES for word in ("-f", str(COMPOSE / name))]
    done = subprocess.run(
        [docker, "compose", *files, "--profile", "8-gpus", "config", "--format", "json"],
        env={**os.environ, "GRAFANA_PASSWORD": "x", "KERNELDYNO_DATABASE_PASSWORD": "x", "KERNELDYNO_CPUS_3": "24-31"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert services["evaluator-3"]["cpuset"] == "24-31"
    for gpu, name in enumerate(per_gpu()):
        service = services[name]
        assert service["hostname"] == f"compose-{gpu}"
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == [str(gpu)]
        assert service["command"] == services["evaluator"]["command"]
        assert "systempaths=unconfined" in service["security_opt"]


def test_grafana_reads_that_prometheus_and_the_mounted_dashboards() -> None:
    (compose,) = load(COMPOSE / "compose.yaml")
    (source,) = load(COMPOSE / "grafana/provisioning/datasources/prometheus.yaml")
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    (provider,) = load(COMPOSE / "grafana/provisioning/dashboards/kerneldyno.yaml")
    path = provider["providers"][0]["options"]["path"]
    assert any(volume.split(":")[1] == path for volume in compose["services"]["grafana"]["volumes"])


def test_the_seccomp_profile_refuses_and_allows_what_it_is_for() -> None:
    profile = json.loads((DEPLOY / "security/seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    (rule,) = profile["syscalls"]
    assert rule["action"] == "SCMP_ACT_ERRNO"
    assert rule["names"] == sorted(rule["names"])
    needed = {
        "unshare",
        "clone",
        "clone3",
        "mount",
        "umount2",
        "pivot_root",
        "seccomp",
        "landlock_create_ruleset",
        "ptrace",
    }
    assert not needed & set(rule["names"])
    assert {"bpf", "kexec_load", "init_module", "perf_event_open", "open_by_handle_at"} <= set(rule["names"])
