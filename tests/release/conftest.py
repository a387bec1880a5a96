"""The two files of a release, built once from this tree, and an environment with only the scheduler's extra."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import artifacts
import environments
import pytest
from extras import ROOT

from tests.release.release_harness import Release


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    place = tmp_path_factory.mktemp("release")
    sdist = artifacts.build(ROOT, place / "sdist", "sdist")
    source = artifacts.unpack(sdist, place / "source")
    wheel = artifacts.build(source, place / "wheel", "wheel")
    return Release(sdist, wheel, artifacts.build(ROOT, place / "tree", "wheel"), source)


@pytest.fixture(scope="session")
def scheduler_only(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel, the extra `scheduler` and their dependencies."""
    interpreter = environments.create(tmp_path_factory.mktemp("install") / "scheduler")
    try:
        environments.install(interpreter, release.wheel, "scheduler")
    except subprocess.CalledProcessError:
        if os.environ.get("CI"):
            raise
        pytest.skip("pip could not fetch what the scheduler needs: is a package index in reach?")
    return interpreter
