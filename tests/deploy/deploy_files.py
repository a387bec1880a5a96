"""Helpers of the tests of deploy/: its files, and a check that our services accept the options in them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def load(path: Path) -> list[Any]:
    """Return the documents of a YAML file, without Compose's tag `!override`."""
    return list(yaml.safe_load_all(path.read_text().replace(" !override ", " ")))


def accepted(service: str, options: Sequence[str]) -> bool:
    """Check that `python -m kerneldyno.SERVICE` knows these options and can read their values; return True.

    The service does not start: `--help` comes last, so argparse reads the options before it and then exits.
    """
    command = [sys.executable, "-m", f"kerneldyno.{service}", *options, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    unknown = [option for option in names(options) if not re.search(rf"{option}(?![\w-])", done.stdout)]
    assert not unknown, f"{service} has no {unknown}"
    return True


def names(options: Iterable[str]) -> list[str]:
    """Return the names of the options among these words."""
    return [word.partition("=")[0] for word in options if word.startswith("--")]


def value(options: Sequence[str], name: str) -> str | None:
    """Return the value of an option, given as `--name=value` or in two words; None if it is not given."""
    for index, word in enumerate(options):
        if word == name:
            return options[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def modules(command: Sequence[str]) -> list[str]:
    """Return the modules that `python -m` runs in a command."""
    return [after for before, after in pairwise(command) if before == "-m"]


#: The fields by which Kubernetes tells the elements of a list apart, for lists that a patch merges. It replaces others.
_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def merged(base: Any, patch: Any) -> Any:
    """Apply a strategic merge patch to an object of Kubernetes, as kustomize does. `$patch` may only be `delete`."""
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    result = dict(base)
    for name, changed in patch.items():
        if changed is None:
            result.pop(name, None)
        elif name in _KEYS:
            result[name] = _merged_list(base.get(name, []), changed, _KEYS[name])
        else:
            result[name] = merged(base.get(name), changed)
    return result


def _merged_list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = {one[key]: one for one in base}
    for one in patch:
        if one.get("$patch") == "delete":
            del result[one[key]]
        else:
            result[one[key]] = merged(result.get(one[key]), one)
    return list(result.values())
