"""Tests that the licences of all dependencies are compatible with Apache-2.0, and that others are found."""

from __future__ import annotations

from pathlib import Path

import licences
import pytest
from extras import TILE_LANGUAGES, TRAINERS, declared

pytestmark = pytest.mark.pure

#: Extras that are installed where `make test` runs; `make release-check` checks those of the trainers.
HERE = sorted(set(declared()) - TRAINERS - TILE_LANGUAGES)


def test_all_that_comes_along_may() -> None:
    found = licences.of_extras(HERE)
    names = {one.name for one in found}
    assert {"kerneldyno", "grpcio", "torch", "triton", "pyarrow", "starlette"} <= names
    assert "pytest" not in names
    assert list(licences.faults(found)) == []


def test_the_base_is_small() -> None:
    names = {one.name for one in licences.of_extras([])}
    assert {"grpcio", "typer"} <= names
    assert not names & {"torch", "numpy", "prometheus-client"}


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        ("License-Expression: MIT OR GPL-3.0-only", "MIT OR GPL-3.0-only"),
        ("License: BSD", "BSD-3-Clause"),
        ("License: Apache License, Version 2.0", "Apache-2.0"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Classifier: License :: OSI Approved :: Python Software Foundation License", "PSF-2.0"),
        ("License-Expression: Apache-2.0 AND (MIT AND Zlib)", "Apache-2.0 AND (MIT AND Zlib)"),
    ],
)
def test_what_is_allowed(tmp_path: Path, said: str, expression: str) -> None:
    (found,) = environment(tmp_path, said)
    assert (found.expression, found.fault) == (expression, None)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("License-Expression: GPL-3.0-or-later", "GPL-3.0-or-later is not in the list"),
        ("License-Expression: MIT AND LGPL-2.1-only", "not in the list"),
        ("License-Expression: (MIT OR GPL-2.0-only)", "not in the list"),  # a person must check brackets
        ("Classifier: License :: OSI Approved :: GNU Affero General Public License v3", "LicenseRef-GPL is not"),
        ("License: LGPL with parts under MIT", "LicenseRef-GPL is not"),
        ("License: MPL-2.0", "MPL-2.0 is not in the list"),  # allowed only for named packages
        ("License: see the file", "unknown"),
        ("Summary: says nothing", "unknown"),
    ],
)
def test_what_is_not(tmp_path: Path, said: str, complaint: str) -> None:
    found = environment(tmp_path, said)
    (fault,) = licences.faults(found)
    assert fault.startswith("some-thing 1.0")
    assert complaint in fault


def test_an_exception_holds_for_its_name_and_its_licence(tmp_path: Path) -> None:
    (known,) = environment(tmp_path / "known", "License: MPL-2.0", name="certifi")
    assert (known.fault, known.reason != "") == (None, True)
    (changed,) = environment(tmp_path / "changed", "License: AGPL-3.0", name="certifi")
    assert changed.fault is not None


def environment(place: Path, said: str, name: str = "Some_Thing") -> list[licences.Licence]:
    """Return the licences of a folder with one distribution whose metadata says this."""
    folder = place / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{said}\n")
    return licences.of_environment(place)
