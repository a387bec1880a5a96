"""Commands that install an extra, for each origin of this installation that pip records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ASK = "from kerneldyno.rpc import installing; print(installing.command('verl')); print(installing.command())"


def asked(folder: Path, origin: object) -> list[str]:
    """Return the commands that a Python prints if the package is installed from this origin."""
    noted = folder / "site" / "kerneldyno-0.1.0.dist-info"
    noted.mkdir(parents=True)
    (noted / "METADATA").write_text("Metadata-Version: 2.1\nName: kerneldyno\nVersion: 0.1.0\n")
    if origin is not None:
        (noted / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    program = f"import sys; sys.path.insert(0, {str(noted.parent)!r}); {ASK}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_from_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "my wheels" / "kerneldyno-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    said = asked(tmp_path, {"url": wheel.as_uri(), "archive_info": {}})
    assert said == [f"pip install '{wheel}[verl]'", f"pip install '{wheel}'"]


@pytest.mark.parametrize(("editable", "option"), [(False, ""), (True, "-e ")])
def test_from_a_clone(tmp_path: Path, editable: bool, option: str) -> None:
    said = asked(tmp_path, {"url": tmp_path.as_uri(), "dir_info": {"editable": True} if editable else {}})
    assert said == [f"pip install {option}'{tmp_path}[verl]'", f"pip install {option}{tmp_path}"]


def test_from_a_repository(tmp_path: Path) -> None:
    origin = {"url": "https://example.org/kerneldyno.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    assert asked(tmp_path, origin)[0] == "pip install 'kerneldyno[verl] @ git+https://example.org/kerneldyno.git'"


@pytest.mark.parametrize("origin", [None, "{", "[]", {"url": "file:///nowhere/kerneldyno.whl", "archive_info": {}}])
def test_from_nowhere_that_is_known(tmp_path: Path, origin: object) -> None:
    said = asked(tmp_path, origin)
    assert said[0].startswith(
        "pip install '/path/to/kerneldyno[verl]' (a clone, or its wheel; it is on no package index)"
    )
