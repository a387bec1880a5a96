"""Every exception class of rpc, client, training, gateway and deploy is in docs/errors.md and belongs to one family."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from functools import cache
from pathlib import Path

from tests.docs.docs_pages import ROOT

PAGE = ROOT / "docs" / "errors.md"
#: Base class of each package's exceptions.
FAMILIES = {
    "kerneldyno.training": "TrainingError",
    "kerneldyno.rollout": "RolloutError",
    "kerneldyno.trainers": "AdapterError",
    "kerneldyno.verl": "AdapterError",
    "kerneldyno.trl": "AdapterError",
    "kerneldyno.gateway": "GatewayError",
    "kerneldyno.deploy": "DeployError",
}
#: Modules whose exceptions derive from KernelDynoError directly.
CALLS = ("kerneldyno.rpc.errors", "kerneldyno.client.errors")


def test_every_exception_class_is_on_the_page() -> None:
    listed = re.findall(r"^\| `(\w+)`(\*?) \|", PAGE.read_text(), re.MULTILINE)
    marked = {name: bool(star) for name, star in listed}
    for name, parents in bases().items():
        assert name in marked, f"{name} is not in docs/errors.md"
        assert marked[name] == ("ValueError" in ancestors(name)), f"docs/errors.md: {name}: check its * ({parents})"
    assert set(marked) == set(bases())


def test_every_exception_class_is_in_the_family_of_its_package() -> None:
    assert sum(len(exceptions(file)) for package in FAMILIES for file in files(package)) > 15
    for package, family in FAMILIES.items():
        for file in files(package):
            for name in exceptions(file):
                assert {family, "KernelDynoError"} <= {name, *ancestors(name)}, f"{file}: {name}"


def files(module: str) -> list[Path]:
    """Return the source files of a package or a module, in any folder, without importing it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations is None:
        assert spec.origin is not None
        return [Path(spec.origin)]
    return sorted(file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))


def exceptions(file: Path) -> dict[str, list[str]]:
    """Return the bases of each public exception class in a file. A class counts if a base looks like an exception."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            parents = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
            if any(parent.endswith(("Error", "Exception", "Refusal")) for parent in parents):
                found[node.name] = parents
    return found


@cache
def bases() -> dict[str, list[str]]:
    return {
        name: parents
        for module in (*CALLS, *FAMILIES)
        for file in files(module)
        for name, parents in exceptions(file).items()
    }


def ancestors(name: str) -> set[str]:
    known, found, waiting = bases(), set[str](), [name]
    while waiting:
        for parent in known.get(waiting.pop(), ()):
            assert parent in known or hasattr(builtins, parent), f"{name}: where is {parent} defined?"
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found
