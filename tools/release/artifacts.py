"""Functions that build and check the two files of a release, sdist and wheel.

Each check returns complaints, one line each. A file without complaints may be published.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata

#: Folder of a wheel with the files of the corpora, which are not modules.
_CORPUS = "kerneldyno/cli/corpus_files/"


def build(source: Path, out: Path, kind: str) -> Path:
    """Build the sdist or the wheel of a source tree with this interpreter's hatchling; return the file.

    Raises RuntimeError with hatchling's error output.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the {kind} of {source} cannot be built:\n{done.stderr}")
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def unpack(sdist: Path, where: Path) -> Path:
    """Unpack an sdist; return the folder with its pyproject.toml."""
    with tarfile.open(sdist) as archive:
        archive.extractall(where, filter="data")
    (folder,) = where.iterdir()
    return folder


def tracked(checkout: Path) -> set[str] | None:
    """Return the files of a git checkout that git does not ignore; None if `checkout` is no git checkout."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (checkout / name).exists()}


def members(sdist: Path) -> set[str]:
    """Return the files of an sdist, relative to its one folder."""
    with tarfile.open(sdist) as archive:
        return {str(PurePosixPath(*PurePosixPath(one.name).parts[1:])) for one in archive if one.isfile()}


def modules(wheel: Path) -> list[str]:
    """Return the names of all modules in a wheel, sorted."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".py") and not name.startswith(_CORPUS)]
    return sorted(name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files)


def differences(one: Path, other: Path) -> Iterator[str]:
    """Compare the names and contents of the files in two wheels."""
    left, right = _digests(one), _digests(other)
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            state = "differs" if name in left and name in right else "is only in one of them"
            yield f"{name} {state}"


def faults_of_sdist(sdist: Path, files: set[str]) -> Iterator[str]:
    """Compare the files of an sdist with those of a checkout."""
    there = members(sdist) - {"PKG-INFO"}
    for name in sorted(files - there):
        yield f"{name} is in the repository and not in the sdist, whose list is in pyproject.toml"
    for name in sorted(there - files):
        yield f"{name} is in the sdist and not in the repository"


def faults_of_wheel(wheel: Path) -> Iterator[str]:
    """Check that a wheel has one namespace, types in every part, a licence, and no left-over files."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        yield from faults_of_metadata(archive.read(metadata))
    info = metadata.removesuffix("METADATA")
    for needed in ("entry_points.txt", "licenses/LICENSE"):
        if info + needed not in names:
            yield f"{needed} is missing"
    for name in sorted(names):
        path = PurePosixPath(name)
        if path.parts[0] not in ("kerneldyno", info.rstrip("/")):
            yield f"{name} is outside of kerneldyno"
        if "__pycache__" in path.parts or path.suffix in (".pyc", ".log") or path.name.startswith("test_"):
            yield f"{name} does not belong in a wheel"
    if "kerneldyno/__init__.py" in names:
        yield "kerneldyno/__init__.py: the namespace package would hide its other parts"
    for part in sorted({name.split("/")[1] for name in names if name.startswith("kerneldyno/")}):
        if f"kerneldyno/{part}/py.typed" not in names:
            yield f"kerneldyno/{part}/py.typed is missing: type checkers would not look at it"


def faults_of_metadata(raw: bytes) -> Iterator[str]:
    """Validate METADATA or PKG-INFO against its specification; require the fields that a package index shows."""
    try:
        found = Metadata.from_email(raw, validate=True)
    except ExceptionGroup as several:
        yield from (str(one) for one in several.exceptions)
        return
    if found.description_content_type is None or not (found.description or "").strip():
        yield "the description, or its content type, is missing"
    if found.license_expression is None:
        yield "there is no License-Expression"
    if found.requires_python is None:
        yield "there is no Requires-Python"


def _digests(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
