"""Tests that one file defines the version, and that all other places agree with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import layout
import pytest
import yaml
from extras import ROOT
from packaging.version import Version

from kerneldyno.rpc.version import VERSION

pytestmark = pytest.mark.pure

SOURCES = [module.path for module in layout.modules(ROOT).values()]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def test_it_is_a_version() -> None:
    assert str(Version(VERSION)) == VERSION


def test_no_other_module_knows_it() -> None:
    assert len(SOURCES) > 250
    saying = [path.name for path in SOURCES if f'"{VERSION}"' in path.read_text()]
    assert saying == ["version.py"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]


@pytest.mark.parametrize("page", PAGES)
def test_what_pages_show_is_of_this_version(page: str) -> None:
    shown = re.findall(r"(?:kerneldyno|version)[ :]+(\d+\.\d+\.\d+)\b", (ROOT / page).read_text())
    assert set(shown) <= {VERSION}


def test_the_example_of_kubernetes_takes_images_of_this_version() -> None:
    overlay = yaml.safe_load((ROOT / "deploy/kubernetes/example/kustomization.yaml").read_text())
    assert {image["newTag"] for image in overlay["images"]} == {VERSION}


@pytest.mark.parametrize("service", ["scheduler", "evaluator"])
def test_an_image_says_its_version_and_was_built_of_it(service: str) -> None:
    text = Path(ROOT / f"deploy/docker/{service}.Dockerfile").read_text()
    assert "\nARG VERSION=\n" in text
    assert 'org.opencontainers.image.version="${VERSION}"' in text
    assert 'test -z "${VERSION}" || test "$(kerneldyno --version)" = "kerneldyno ${VERSION}"' in text
