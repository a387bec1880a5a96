"""The units: systemd accepts them, and they do not weaken the sandbox of candidates."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.deploy.deploy_files import DEPLOY, accepted, modules, value
from tests.needed import needs

UNITS = DEPLOY / "systemd"
each = pytest.mark.parametrize("service", ["scheduler", "evaluator"])


#: What makes an evaluator's unit one of a GPU.
PER_GPU = UNITS / "kerneldyno-evaluator@.service.d/per-gpu.conf"


def settings(service: str) -> dict[str, list[str]]:
    """Return the directives of a unit, each with all its values."""
    return directives(UNITS / f"kerneldyno-{service}.service")


def directives(path: Path) -> dict[str, list[str]]:
    text = re.sub(r"\\\n", " ", path.read_text())
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, setting = line.partition("=")
            found[name].append(setting)
    return found


def command(service: str) -> list[str]:
    (line,) = settings(service)["ExecStart"]
    return re.sub(r"( \$\w+)+$", "", line).replace("${SCHEDULER}", "host:50051").split()


def of_gpu(number: int) -> list[str]:
    """Return what the unit of a GPU adds to the command, as systemd expands it on the host gpu-host."""
    (line,) = directives(PER_GPU)["Environment"]
    name, _, options = line.strip('"').replace("%i", str(number)).replace("%H", "gpu-host").partition("=")
    assert "%" not in options
    # The first is empty where there is one unit for all GPUs; what an operator adds comes last, and so counts.
    assert f"{name}=" in settings("evaluator")["Environment"][0].split()
    assert settings("evaluator")["ExecStart"][0].endswith(f" ${name} $OPTIONS")
    return options.split()


@each
def test_systemd_finds_nothing(service: str, tmp_path: Path) -> None:
    analyze = needs("systemd-analyze", package="systemd")
    name = f"kerneldyno-{service}.service"
    # systemd-analyze also looks for the program.
    unit = (UNITS / name).read_text().replace("/opt/kerneldyno/bin/python", sys.executable)
    (tmp_path / name).write_text(unit)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert name not in done.stderr, done.stderr


def test_systemd_finds_nothing_in_the_unit_of_a_gpu(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze", package="systemd")
    unit = tmp_path / "kerneldyno-evaluator@.service"  # a copy under this name, as docs/deploying.md installs it
    text = (UNITS / "kerneldyno-evaluator.service").read_text()
    unit.write_text(text.replace("/opt/kerneldyno/bin/python", sys.executable))
    drop_in = shutil.copytree(PER_GPU.parent, tmp_path / PER_GPU.parent.name) / PER_GPU.name
    command = [analyze, "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "kerneldyno" not in done.stderr, done.stderr
    drop_in.write_text(drop_in.read_text() + "Unknown=yes\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Unknown" in done.stderr  # it was read


def test_units_of_gpus_share_neither_ports_nor_names() -> None:
    assert accepted("evaluator", of_gpu(0))
    for option in ("--devices", "--node-id", "--metrics"):
        assert len({value(of_gpu(number), option) for number in range(10)}) == 10
    assert value(of_gpu(3), "--devices") == "cuda:3"
    assert value(of_gpu(3), "--listen") == "127.0.0.1:0"
    assert directives(PER_GPU)["Conflicts"] == ["kerneldyno-evaluator.service"]


@each
def test_options_are_known_and_there_is_time_to_drain(service: str) -> None:
    words = command(service)
    assert modules(words) == [f"kerneldyno.{service}"]
    assert accepted(service, words[3:])
    default = {"scheduler": 30, "evaluator": 60}[service]
    (limit,) = settings(service)["TimeoutStopSec"]
    assert int(limit) > float(value(words, "--drain-timeout") or default) + 5


@each
def test_credentials_that_are_used_are_loaded(service: str) -> None:
    used = set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", " ".join(command(service))))
    assert used == {entry.partition(":")[0] for entry in settings(service)["LoadCredential"]}


def test_the_journal_is_where_the_unit_may_write() -> None:
    (state,) = settings("scheduler")["StateDirectory"]
    store = value(command("scheduler"), "--store")
    assert store is not None
    assert store.startswith(f"sqlite:/var/lib/{state}/")


def test_the_build_cache_is_where_the_unit_may_write_and_survives_restarts() -> None:
    (cache,) = settings("evaluator")["CacheDirectory"]
    chosen = value(command("evaluator"), "--build-cache")
    assert chosen is not None
    assert chosen.startswith(f"/var/cache/{cache}/")


def test_nothing_takes_the_candidates_walls_away() -> None:
    evaluator = settings("evaluator")
    harmful = {
        *("RestrictNamespaces", "PrivateUsers", "PrivateDevices", "MemoryDenyWriteExecute", "ProtectControlGroups"),
        *(
            "ProtectKernelTunables",
            "ProtectKernelLogs",
            "ProtectProc",
            "ProcSubset",
            "RestrictFileSystems",
            "PrivateNetwork",
        ),
    }
    assert not harmful & set(evaluator)
    (filters,) = evaluator["SystemCallFilter"]
    assert filters.startswith("~")
    assert not {"@mount", "@sandbox", "@debug", "@privileged", "@setuid"} & set(filters.removeprefix("~").split())
    assert value(command("evaluator"), "--sandbox") == "require"
    assert evaluator["Delegate"] == ["memory pids"]
