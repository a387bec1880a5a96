"""Tests of the scheduler's architecture, read from its imports: which folder may import which, and what is pure."""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

import layout
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "kerneldyno.scheduler"

#: By folder or module of the scheduler, those that it may import. The lowest one is first, the highest last.
ALLOWED: dict[str, set[str]] = {
    "clock": set(),
    "failpoints": set(),
    "settings": set(),
    "probes": set(),
    "core": {"clock", "settings"},
    "store": {"core", "clock", "failpoints"},
    "telemetry": {"core", "clock"},
    "service": {"telemetry", "core", "settings", "failpoints", "probes"},
    "roles": {"core"},
    "shared": {"roles", "store", "core", "settings"},
    "standby": {"roles", "shared", "telemetry", "store", "core", "settings", "probes"},
    "store_tool": {"shared", "store", "core", "settings"},
    "app": {"roles", "shared", "service", "telemetry", "store", "core", "settings", "clock", "failpoints", "probes"},
    "__main__": {"app", "shared", "standby", "core", "settings"},
}
#: Modules that `core` must not import, since its decisions are pure.
IMPURE = (
    "asyncio",
    "threading",
    "sqlite3",
    "grpc",
    "google",
    "time",
    "random",
    "logging",
    "kerneldyno.rpc",
    "kerneldyno.v1",
)


MODULES = layout.modules(ROOT)
SOURCES = {name: module for name, module in MODULES.items() if module.folder == "scheduler"}


def imports(module: str) -> set[str]:
    """Return the names of all modules that `module` imports, also those for type checking only."""
    return set(layout.imported(SOURCES[module], MODULES))


def floor(module: str) -> str:
    """Return the folder or module directly below the scheduler that `module` belongs to; "" for the package itself."""
    return module.removeprefix(PACKAGE).lstrip(".").partition(".")[0]


def test_every_folder_is_in_the_table() -> None:
    assert {floor(module) for module in SOURCES} - {""} == set(ALLOWED)


def test_the_table_has_no_arrow_upwards() -> None:
    below: set[str] = set()
    for name, allowed in ALLOWED.items():
        assert allowed <= below, f"{name} may import only what is listed before it"
        below.add(name)


@pytest.mark.parametrize("name", ALLOWED)
def test_imports_keep_to_the_table(name: str) -> None:
    for module in SOURCES:
        if floor(module) == name:
            used = {floor(other) for other in imports(module) if other.startswith(f"{PACKAGE}.")}
            assert used - {name} <= ALLOWED[name], f"{module} imports {sorted(used - {name} - ALLOWED[name])}"


def test_every_arrow_of_the_table_is_used() -> None:
    used = {
        (floor(module), floor(other)) for module in SOURCES for other in imports(module) if other.startswith(PACKAGE)
    }
    assert {(name, other) for name, allowed in ALLOWED.items() for other in allowed} <= used


def test_imports_are_absolute() -> None:
    assert not [name for name, module in SOURCES.items() if "\nfrom ." in module.path.read_text()]


def test_modules_import_each_other_in_no_circle() -> None:
    TopologicalSorter({module: imports(module) & SOURCES.keys() for module in SOURCES}).prepare()  # raises CycleError


def test_core_is_pure() -> None:
    for module in SOURCES:
        if floor(module) == "core":
            impure = {name for name in imports(module) if name.startswith(IMPURE)}
            assert not impure, f"{module} imports {sorted(impure)}"
