"""The architecture's walls, read from the imports in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVALUATOR = ROOT / "evaluator_server/kerneldyno/evaluator"


#: Who imports whom in the evaluator, by folders, lowest floor first; "" is its entry points and old names.
ARROWS = {
    "shared": set(),
    "walls": {"shared"},
    "devices": {"shared"},
    "backends": {"devices"},
    "toolkits": {"shared", "devices"},
    "runner": {"shared", "walls", "devices", "backends", "toolkits"},
    "judge.runners": {"shared", "walls", "devices"},
    "judge.comparison": {"shared", "devices"},
    "judge.memory": {"devices", "judge.runners"},
    "judge.results": {"shared", "walls", "judge.runners", "judge.comparison"},
    "judge.problems": {
        *("shared", "devices", "toolkits"),
        *("judge.runners", "judge.comparison", "judge.memory", "judge.results"),
    },
    "judge.checks": {
        *("shared", "devices", "backends", "toolkits"),
        *("judge.runners", "judge.comparison", "judge.results", "judge.problems"),
    },
    "judge.timing": {
        *("shared", "devices", "toolkits"),
        *("judge.runners", "judge.memory", "judge.results", "judge.problems", "judge.checks"),
    },
    "judge": {
        *("shared", "walls", "devices", "toolkits"),
        *("judge.runners", "judge.comparison", "judge.memory", "judge.results", "judge.problems", "judge.checks"),
        "judge.timing",
    },
    "server": {"shared"},
    "": {"shared", "devices", "toolkits", "judge.problems", "server"},
}


def folder_of(module: str) -> str | None:
    """The folder of the evaluator that a module is in, as ARROWS names it; None of a module of others."""
    if not (module + ".").startswith("kerneldyno.evaluator."):
        return None
    name = module.removeprefix("kerneldyno.evaluator").removeprefix(".")
    return max((folder for folder in ARROWS if (name + ".").startswith(folder + ".") or not folder), key=len)


def imports(path: Path) -> set[str]:
    """Absolute names of the modules that a file imports anywhere, in functions and for type checking as well."""
    top = ROOT / path.relative_to(ROOT).parts[0]
    package = list(path.relative_to(top).with_suffix("").parts)[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if "/v1/" not in str(path)]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        (EVALUATOR / "runner", "kerneldyno.evaluator.judge"),
        (EVALUATOR / "runner", "kerneldyno.evaluator.toolkits"),
        (EVALUATOR / "runner", "grpc"),
        (EVALUATOR / "judge", "kerneldyno.evaluator.runner"),
        (EVALUATOR / "judge", "grpc"),
        (ROOT / "common", "torch"),
        (ROOT / "client", "torch"),
        (ROOT / "scheduler", "torch"),
        (ROOT / "gateway", "torch"),
        (ROOT / "deploy/kerneldyno", "torch"),
        (ROOT / "cli", "torch"),
    ],
)
def test_wall(folder: Path, forbidden: str) -> None:
    seen = files(folder)
    assert seen
    for path in seen:
        # The one door: references are timed in runners of their own, which no candidate ever enters.
        if forbidden == "kerneldyno.evaluator.toolkits" and path.name == "reference.py":
            continue
        crossing = {name for name in imports(path) if name == forbidden or name.startswith(forbidden + ".")}
        assert not crossing, f"{path.relative_to(ROOT)} imports {sorted(crossing)}"


def test_folders_of_the_evaluator_import_whom_they_may_and_nobody_else() -> None:
    seen: dict[str, set[str]] = {folder: set() for folder in ARROWS}
    for path in files(EVALUATOR):
        folder = folder_of(".".join(path.relative_to(ROOT / "evaluator_server").with_suffix("").parts)) or ""
        seen[folder] |= {other for name in imports(path) if (other := folder_of(name)) is not None} - {folder}
    assert seen == ARROWS


def test_no_folder_of_the_evaluator_imports_a_higher_one() -> None:
    floors = list(ARROWS)
    assert all(floors.index(other) < floors.index(folder) for folder, others in ARROWS.items() for other in others)


@pytest.mark.parametrize(
    "module", ["kerneldyno.evaluator.server.main", "kerneldyno.evaluator.server.node", "kerneldyno.cli"]
)
def test_torch_stays_out_of_the_process(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_cancellation_is_lost() -> None:
    """Python 3.11's asyncio.wait_for swallows one that comes together with what it waits for; asyncio.timeout does not."""
    sources = list(ROOT.glob("*/kerneldyno/**/*.py"))
    assert len(sources) > 150
    assert [path for path in sources if "asyncio.wait_for(" in path.read_text()] == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """`make test-gpu` collects all folders at once, and pytest imports their files by the last part of their names."""
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
