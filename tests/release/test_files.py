"""Tests of wheel and sdist: their contents, and that every way to build gives the same wheel."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import artifacts
import pytest
from extras import ROOT, extra_of

from kerneldyno.rpc.version import VERSION
from tests.release.release_harness import Release

METADATA = b"Metadata-Version: 2.4\nName: kerneldyno\nVersion: 1\n"


def test_the_sdist_has_every_file_of_the_repository(release: Release) -> None:
    # These tests also run in an unpacked sdist, which has no repository: there the sdist is compared with itself.
    files = artifacts.tracked(ROOT) or artifacts.members(release.sdist) - {"PKG-INFO"}
    assert len(files) > 1500
    assert list(artifacts.faults_of_sdist(release.sdist, files)) == []
    assert (release.source / "Makefile").read_text() == (ROOT / "Makefile").read_text()


def test_what_else_lies_in_a_checkout_stays_out(release: Release, tmp_path: Path) -> None:
    shutil.copytree(release.source, tmp_path / "checkout")
    for stray in (
        ".venv-mine/lib/module.py",
        "results.jsonl",
        "deploy/kubernetes/mine/secrets/ca.pem",
        "deploy/kubernetes/example/secrets/tokens.toml",
    ):
        path = tmp_path / "checkout" / stray
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("private")
    sdist = artifacts.build(tmp_path / "checkout", tmp_path / "dist", "sdist")
    assert artifacts.members(sdist) == artifacts.members(release.sdist)


def test_the_wheel_is_whole(release: Release) -> None:
    assert list(artifacts.faults_of_wheel(release.wheel)) == []
    with zipfile.ZipFile(release.wheel) as archive:
        points = archive.read(f"kerneldyno-{VERSION}.dist-info/entry_points.txt").decode()
    assert "kerneldyno = kerneldyno.cli:main" in points


def test_the_wheel_from_the_sdist_is_that_of_the_tree(release: Release) -> None:
    assert list(artifacts.differences(release.wheel, release.wheel_of_tree)) == []


def test_the_metadata_of_both_is_valid_and_the_same(release: Release) -> None:
    info = (release.source / "PKG-INFO").read_bytes()
    assert list(artifacts.faults_of_metadata(info)) == []
    with zipfile.ZipFile(release.wheel) as archive:
        assert archive.read(f"kerneldyno-{VERSION}.dist-info/METADATA") == info
    assert release.sdist.name == f"kerneldyno-{VERSION}.tar.gz"
    assert release.wheel.name == f"kerneldyno-{VERSION}-py3-none-any.whl"


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lambda names: names.pop("kerneldyno/client/py.typed"), r"kerneldyno/client/py.typed is missing"),
        (lambda names: names.update({"kerneldyno/__init__.py": b""}), "the namespace package would hide"),
        (lambda names: names.update({"tests/test_x.py": b""}), "tests/test_x.py is outside of kerneldyno"),
        (lambda names: names.update({"kerneldyno/client/__pycache__/x.pyc": b""}), "does not belong in a wheel"),
        (lambda names: names.pop("kerneldyno-1.dist-info/licenses/LICENSE"), "licenses/LICENSE is missing"),
        (lambda names: names.update({"kerneldyno-1.dist-info/METADATA": b"Name: x y\n"}), "valid metadata version"),
    ],
)
def test_a_bad_wheel_is_found(tmp_path: Path, break_it: object, complaint: str) -> None:
    assert callable(break_it)
    info = (
        METADATA + b"License-Expression: MIT\nRequires-Python: >=3.11\nDescription-Content-Type: text/plain\n\nWords.\n"
    )
    names = {
        "kerneldyno/client/__init__.py": b"",
        "kerneldyno/client/py.typed": b"",
        "kerneldyno-1.dist-info/METADATA": info,
        "kerneldyno-1.dist-info/entry_points.txt": b"",
        "kerneldyno-1.dist-info/licenses/LICENSE": b"",
    }
    assert list(artifacts.faults_of_wheel(_wheel(tmp_path / "good.whl", names))) == []
    break_it(names)
    assert re.search(complaint, "\n".join(artifacts.faults_of_wheel(_wheel(tmp_path / "bad.whl", names))))


def test_differences_are_named(tmp_path: Path) -> None:
    one = _wheel(tmp_path / "one.whl", {"a": b"1", "b": b"2"})
    other = _wheel(tmp_path / "other.whl", {"a": b"1", "b": b"3", "c": b""})
    assert list(artifacts.differences(one, other)) == ["b differs", "c is only in one of them"]


def test_missing_metadata_is_named() -> None:
    assert list(artifacts.faults_of_metadata(METADATA)) == [
        "the description, or its content type, is missing",
        "there is no License-Expression",
        "there is no Requires-Python",
    ]


def test_every_module_belongs_to_an_extra(release: Release) -> None:
    modules = artifacts.modules(release.wheel)
    assert len(modules) > 250
    assert {extra_of(module) for module in modules} >= {"", "scheduler", "evaluator", "training", "rollout", "gateway"}
    with pytest.raises(KeyError, match="which extra it needs"):
        extra_of("kerneldyno.new")


def _wheel(path: Path, names: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return path
