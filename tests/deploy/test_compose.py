"""The compose files: the Compose specification's schema, files, options, published ports, and the seccomp profile."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.deploy.deploy_files import DEPLOY, accepted, load, value

COMPOSE = DEPLOY / "compose"
FILES = ("compose.yaml", "namespaces.yaml")


def test_they_keep_to_the_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, *(COMPOSE / name for name in FILES)], capture_output=True, text=True, timeout=60)
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


def test_only_loopback_is_published() -> None:
    (compose,) = load(COMPOSE / "compose.yaml")
    published = [port for service in compose["services"].values() for port in service.get("ports", ())]
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
    for service in ("scheduler", "evaluator"):
        shown = value(compose["services"][service]["command"], "--metrics")
        assert shown is not None
        assert targets[f"kerneldyno-{service}"] == f"{service}:{shown.rpartition(':')[2]}"


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
