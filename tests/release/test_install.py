"""Tests of the wheel in an empty environment. `make release-check` installs every extra in turn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import artifacts
import environments
from extras import WITH_TORCH, declared, included, promised

from kerneldyno.rpc.version import VERSION
from tests.release.release_harness import Release

CONSUMER = Path(__file__).parent / "consumer.py"


def test_an_install_has_what_its_extra_promises(release: Release, scheduler_only: Path) -> None:
    modules = artifacts.modules(release.wheel)
    here = promised("scheduler", modules)
    assert set(promised("", modules)) < set(here)
    assert len(here) > 100
    assert list(environments.faults(scheduler_only, "scheduler", here, VERSION)) == []


def test_nothing_else_comes_along(scheduler_only: Path) -> None:
    brought = environments.installed(scheduler_only)
    assert brought["kerneldyno"] == VERSION
    assert not brought.keys() & {"torch", "triton", "numpy", "starlette", "httpx", "pytest"}


def test_what_is_not_promised_fails_and_is_named(scheduler_only: Path) -> None:
    (fault,) = environments.import_faults(scheduler_only, ["kerneldyno.client", "kerneldyno.training.losses"])
    assert fault.startswith("import kerneldyno.training.losses: ModuleNotFoundError")


def test_torch_is_asked_for_by_name_only_where_it_may_be() -> None:
    for extra, requirements in declared().items():
        asks = any(one.name in ("torch", "triton") for one in requirements)
        assert not asks or extra in WITH_TORCH, extra
        if not extra:
            assert included(extra) == {""}


def test_a_users_type_checker_sees_our_types(scheduler_only: Path, tmp_path: Path) -> None:
    """mypy runs outside the repository, so it knows only the installed wheel. Unused ignores are errors."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(scheduler_only),
        "--config-file",
        "",
    ]
    program = tmp_path / "consumer.py"
    program.write_text(CONSUMER.read_text())
    done = subprocess.run([*command, "consumer.py"], cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout


def test_the_check_would_miss_untyped_parts_were_it_not_for_the_marker(scheduler_only: Path, tmp_path: Path) -> None:
    """Counter-test: without py.typed mypy refuses to read a part, so the test above cannot pass by accident."""
    (marker,) = scheduler_only.parents[1].glob("lib/python3*/site-packages/kerneldyno/client/py.typed")
    marker.rename(marker.with_name("py.typed.away"))
    try:
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--python-executable",
            str(scheduler_only),
            "--config-file",
            "",
        ]
        code = "from kerneldyno.client import AsyncClient"
        done = subprocess.run([*command, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=170)
    finally:
        marker.with_name("py.typed.away").rename(marker)
    assert done.returncode == 1
    assert "missing library stubs or py.typed marker" in done.stdout
