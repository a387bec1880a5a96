"""Checks of the images without building them: hadolint, their instructions, and the wheel built from their context."""

from __future__ import annotations

import fnmatch
import json
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from kerneldyno.scheduler.probes import READINESS
from tests.deploy.deploy_files import DEPLOY, ROOT, accepted, modules, value
from tests.needed import needs

FILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))
#: The service that each image starts.
SERVICES = {"scheduler.Dockerfile": "scheduler", "evaluator.Dockerfile": "evaluator"}

image = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def instructions(file: Path, name: str) -> list[str]:
    """Return the arguments of each `name` instruction."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", file.read_text()))
    return [line.split(maxsplit=1)[1].strip() for line in joined.splitlines() if re.match(rf"\s*{name}\s", line)]


def copied(file: Path) -> list[str]:
    """Return the paths that are copied from the build context."""
    return [source for line in instructions(file, "COPY") if "--from" not in line for source in line.split()[:-1]]


def test_there_is_one_for_each_service() -> None:
    assert [file.name for file in FILES] == sorted(SERVICES)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no wheel of hadolint for this machine")
@image
def test_hadolint_finds_nothing(file: Path) -> None:
    done = subprocess.run([needs("hadolint"), "--no-color", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@image
def test_what_is_copied_is_there_and_not_ignored(file: Path) -> None:
    for source in copied(file):
        assert (ROOT / source).exists(), source
        assert in_context(source), f".dockerignore leaves out {source}"


def test_nothing_else_gets_into_the_context() -> None:
    needed = {source for file in FILES for source in copied(file)}
    for path in ROOT.iterdir():
        assert in_context(path.name) == any(source.split("/")[0] == path.name for source in needed), path.name
    assert not in_context("tests/rpc")
    assert not in_context("deploy/kubernetes/example/secrets/scheduler.key")
    assert not in_context("client/kerneldyno/__pycache__")


@image
def test_a_wheel_can_be_built_from_what_is_copied(file: Path, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for source in copied(file):
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source, ignore=ignored)
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    for module in (
        f"kerneldyno.{SERVICES[file.name]}.__main__",
        "kerneldyno.deploy.health",
        "kerneldyno.cli.up",
    ):
        assert f"{module.replace('.', '/')}.py" in files or f"{module.replace('.', '/')}/__init__.py" in files, module
    assert any(name.startswith("kerneldyno/cli/corpus_files/attacks/") for name in files)


@image
def test_extras_exist_and_versions_are_pinned(file: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installs = [line for line in instructions(file, "RUN") if "pip install" in line]
    assert installs
    for line in installs:
        assert "-c constraints.txt" in line
    wanted = [
        extra for line in installs for found in re.findall(r"'\.\[([\w,]+)\]'", line) for extra in found.split(",")
    ]
    journal = ["postgres"] if SERVICES[file.name] == "scheduler" else []
    assert wanted == [SERVICES[file.name], *journal, "tracing"]
    assert set(wanted) <= set(extras)


def test_the_schedulers_image_has_no_torch() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not any("torch" in requirement or "[" in requirement for requirement in extras["scheduler"])
    assert "torch" not in "".join(instructions(DEPLOY / "docker/scheduler.Dockerfile", "RUN"))


def test_torch_and_the_compiler_are_of_one_cuda() -> None:
    text = (DEPLOY / "docker/evaluator.Dockerfile").read_text()
    base, wheel = (
        re.search(r"(?m)^ARG CUDA_IMAGE=nvidia/cuda:(\d+)\.(\d+)\S*-devel-", text),
        re.search(r"(?m)^ARG TORCH_CUDA=cu(\d+)$", text),
    )
    assert base is not None
    assert wheel is not None
    assert wheel[1] == base[1] + base[2]


@image
def test_it_runs_as_nobody_in_particular_and_starts_what_it_says(file: Path) -> None:
    service = SERVICES[file.name]
    assert instructions(file, "USER") == ["10001:10001"]
    entry, options = (json.loads(instructions(file, name)[-1]) for name in ("ENTRYPOINT", "CMD"))
    assert modules(entry) == [f"kerneldyno.{service}"]
    assert accepted(service, options)
    (check,) = instructions(file, "HEALTHCHECK")
    command = json.loads(check.partition(" CMD ")[2])
    assert modules(command) == ["kerneldyno.deploy.health"]
    assert value(command, "--service") == {"scheduler": READINESS}.get(service), "a standby is healthy, too"


@image
def test_what_it_keeps_is_on_a_volume_of_its_user(file: Path) -> None:
    """Docker gives a new volume the owner and mode of the folder in the image."""
    (volume,) = instructions(file, "VOLUME")
    kept = [word.removeprefix("sqlite:") for word in json.loads(instructions(file, "CMD")[-1]) if volume in word]
    assert len(kept) == 1
    assert kept[0].startswith(f"{volume}/")
    assert f"install -d -o kerneldyno -g kerneldyno -m 0700 {volume}" in " ".join(instructions(file, "RUN"))


def in_context(path: str) -> bool:
    """Return whether .dockerignore lets a path through: the last pattern that matches it or a parent decides."""
    allowed = True
    parts = path.split("/")
    below = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        plain = pattern.removeprefix("**/")
        names = [prefix.rsplit("/", 1)[-1] if plain != pattern else prefix for prefix in below]
        if any(name.count("/") == plain.count("/") and fnmatch.fnmatch(name, plain) for name in names):
            allowed = line.startswith("!")
    return allowed
