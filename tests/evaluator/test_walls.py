"""Rules for the source, above all which folder may import which, read from the imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import layout
import pytest

ROOT = Path(__file__).parents[2]
MODULES = layout.modules(ROOT)

#: For each of the evaluator's folders, those that it imports, lowest floor first; "" is entry points and old names.
ARROWS = {
    "shared": set(),
    "walls": {"shared"},
    "devices": {"shared"},
    "backends": {"devices"},
    "toolkits": {"shared", "devices"},
    "compiling": {"shared"},
    "runner": {"shared", "walls", "devices", "backends", "toolkits", "compiling"},
    "judge.runners": {"shared", "walls", "devices"},
    "judge.comparison": {"shared", "devices", "judge.runners"},
    "judge.memory": {"devices", "judge.runners"},
    "judge.results": {"shared", "walls", "judge.runners", "judge.comparison", "judge.memory"},
    "judge.problems": {
        *("shared", "devices"),
        *("judge.runners", "judge.comparison", "judge.memory", "judge.results"),
    },
    "judge.checks": {
        *("shared", "devices", "backends"),
        *("judge.runners", "judge.comparison", "judge.results", "judge.problems"),
    },
    "judge.timing": {
        *("shared", "devices"),
        *("judge.runners", "judge.memory", "judge.results", "judge.problems", "judge.checks"),
    },
    "judge": {
        *("shared", "walls", "devices"),
        *("judge.runners", "judge.comparison", "judge.memory", "judge.results", "judge.problems", "judge.checks"),
        "judge.timing",
    },
    "builder": {"shared", "walls", "devices", "judge.runners", "judge.results", "judge"},
    "server": {"shared"},
    "": {"shared", "devices", "toolkits", "judge.comparison", "judge.problems", "server"},
}


def folder_of(module: str) -> str | None:
    """Return the evaluator's folder that a module is in, as ARROWS names it, or None for other modules."""
    if not (module + ".").startswith("kerneldyno.evaluator."):
        return None
    name = module.removeprefix("kerneldyno.evaluator").removeprefix(".")
    return max((folder for folder in ARROWS if (name + ".").startswith(folder + ".") or not folder), key=len)


def below(place: str) -> list[layout.Module]:
    """Return the modules of a package or of a top-level folder, without generated stubs."""
    chosen = [
        module
        for name, module in MODULES.items()
        if (module.folder == place or (name + ".").startswith(place + ".")) and module.package != "kerneldyno.v1"
    ]
    assert chosen, place
    return chosen


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("kerneldyno.evaluator.runner", "kerneldyno.evaluator.judge"),
        ("kerneldyno.evaluator.runner", "kerneldyno.evaluator.toolkits"),
        ("kerneldyno.evaluator.runner", "grpc"),
        ("kerneldyno.evaluator.judge", "kerneldyno.evaluator.runner"),
        ("kerneldyno.evaluator.judge", "kerneldyno.evaluator.toolkits"),
        ("kerneldyno.evaluator.judge", "grpc"),
        ("kerneldyno.evaluator.compiling", "kerneldyno.evaluator.judge"),
        ("kerneldyno.evaluator.builder", "kerneldyno.evaluator.runner"),
        ("kerneldyno.evaluator.builder", "grpc"),
        ("common", "torch"),
        ("client", "torch"),
        ("scheduler", "torch"),
        ("gateway", "torch"),
        ("deploy", "torch"),
        ("cli", "torch"),
    ],
)
def test_wall(folder: str, forbidden: str) -> None:
    for module in below(folder):
        # The only exceptions: references are timed and sketched in processes that no candidate ever enters.
        if forbidden == "kerneldyno.evaluator.toolkits" and module.path.name in (
            "problem.py",
            "reference.py",
            "sketch.py",
        ):
            continue
        names = layout.imported(module, MODULES)
        crossing = {name for name in names if name == forbidden or name.startswith(forbidden + ".")}
        assert not crossing, f"{module.name} imports {sorted(crossing)}"


def test_folders_of_the_evaluator_import_whom_they_may_and_nobody_else() -> None:
    seen: dict[str, set[str]] = {folder: set() for folder in ARROWS}
    for module in below("kerneldyno.evaluator"):
        folder = folder_of(module.name) or ""
        others = {folder_of(name) for name in layout.imported(module, MODULES)}
        seen[folder] |= {other for other in others if other is not None} - {folder}
    assert seen == ARROWS


def test_no_folder_of_the_evaluator_imports_a_higher_one() -> None:
    floors = list(ARROWS)
    assert all(floors.index(other) < floors.index(folder) for folder, others in ARROWS.items() for other in others)


@pytest.mark.parametrize(
    "module",
    [
        "kerneldyno.evaluator.server.main",
        "kerneldyno.evaluator.server.node",
        "kerneldyno.cli",
        "kerneldyno.evaluator.runner.zygote",  # until it has restarted; otherwise it would import torch twice
    ],
)
def test_torch_stays_out_of_the_process(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_neither_zygote_nor_runner_imports_protobuf() -> None:
    """Protobuf would cost memory in every runner, which has no use for its parser."""
    runner = "kerneldyno.evaluator.runner"
    code = (
        f"import sys, {runner}.zygote, {runner}.harness, {runner}.warden, {runner}.reference as reference\n"
        "reference.preload()\n"
        "sys.exit(any(name.split('.')[0] in ('google', 'grpc') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_cancellation_is_lost() -> None:
    """Python 3.11's asyncio.wait_for loses a cancellation that comes with the awaited event.

    asyncio.timeout does not.
    """
    sources = [module.path for module in MODULES.values()]
    assert len(sources) > 150
    assert [path for path in sources if "asyncio.wait_for(" in path.read_text()] == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """People find a test file by its name, for example in reports."""
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
