"""Print how the packages of a checkout depend on each other: sizes, arrows, floors and circles, read from the imports.

`kerneldyno` is one namespace package spread over top-level folders. An arrow from one folder to another means that
files of the first import modules of the second; imports in functions and for type checking count, too. A folder's floor
is one above the highest floor that it imports from. A circle is a set of folders that all reach each other along
arrows.

    python tools/layout.py                      # this checkout, by top-level folder
    python tools/layout.py --by package         # by package: kerneldyno.client, kerneldyno.rpc ...
    python tools/layout.py --by subfolder       # by folder that holds files
    python tools/layout.py --root ../other      # another checkout
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

NAMESPACE = "kerneldyno"
#: Endings of source files. The report's page has its style and scripts beside the Python code.
SOURCES = {".py", ".pyi", ".js", ".css", ".html"}
ROOT = Path(__file__).resolve().parents[1]

#: Number of imports by (importer, imported); a statement that imports several modules counts once for each.
Arrows = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of the namespace package."""

    #: Name by which it is imported: `kerneldyno.client.aio`, or `kerneldyno.client` for its `__init__.py`.
    name: str
    path: Path
    #: Its top-level folder in the checkout.
    folder: str

    @property
    def package(self) -> str:
        """The package directly below `kerneldyno`, for example `kerneldyno.client`."""
        return ".".join(self.name.split(".")[:2])

    @property
    def subfolder(self) -> str:
        """The folder that holds the file, without the folder named `kerneldyno`."""
        inner = self.name.split(".")[1:]
        return "/".join([self.folder, *(inner if self.path.name == "__init__.py" else inner[:-1])])


#: What `--by` groups modules by.
GROUPS: dict[str, Callable[[Module], str]] = {
    "folder": lambda module: module.folder,
    "package": lambda module: module.package,
    "subfolder": lambda module: module.subfolder,
    "module": lambda module: module.name,
}


def modules(root: Path) -> dict[str, Module]:
    """Find all modules of the namespace package below `root`.

    Args:
        root: a checkout; the folders in it that have a folder `kerneldyno` or `python/kerneldyno` are searched.

    Returns:
        Each module, by the name by which it is imported.
    """
    found = {}
    for folder, top in _tops(root):
        for path in sorted(top.rglob("*.py")):
            parts = list(path.relative_to(top.parent).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            name = ".".join(parts)
            found[name] = Module(name, path, folder)
    return found


def _tops(root: Path) -> list[tuple[str, Path]]:
    """List the parts of the namespace package, each with its top-level folder; a folder `python` may be in between."""
    parts = [*root.glob(f"*/{NAMESPACE}"), *root.glob(f"*/python/{NAMESPACE}")]
    return sorted((part.relative_to(root).parts[0], part) for part in parts)


def imports(known: Mapping[str, Module]) -> list[tuple[Module, Module]]:
    """List all imports among the modules, as (importer, imported).

    `from package import name` counts as an import of `package.name` if that is a module, otherwise of `package`.
    """
    return [(module, known[name]) for module in known.values() for name in imported(module, known) if name in known]


def imported(module: Module, known: Mapping[str, Module]) -> list[str]:
    """List the absolute names of the modules that one module imports, also of those that are not in `known`."""
    package = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
    found: list[str] = []
    for node in ast.walk(ast.parse(module.path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            found += sorted({name if name in known else source for name in names})
    return found


def arrows(found: Iterable[tuple[Module, Module]], group: Callable[[Module], str]) -> Arrows:
    """Count the imports between different groups of modules.

    Args:
        found: the imports, as `imports` lists them.
        group: one of `GROUPS`; returns the name of a module's group.
    """
    named = ((group(importer), group(imported)) for importer, imported in found)
    return Counter(arrow for arrow in named if arrow[0] != arrow[1])


def circles(names: Iterable[str], drawn: Arrows) -> list[list[str]]:
    """List the largest sets of names that all reach each other along arrows (strongly connected components)."""
    after: dict[str, set[str]] = {name: set() for name in names}
    for source, target in drawn:
        after[source].add(target)
    reach = {name: _reachable(name, after) for name in after}
    found: dict[str, list[str]] = {}
    for name in sorted(after):
        together = sorted({name} | {other for other in reach[name] if name in reach[other]})
        if len(together) > 1:
            found[together[0]] = together
    return list(found.values())


def floors(names: Iterable[str], drawn: Arrows) -> list[list[str]]:
    """Group names by floor, the lowest first: names without arrows to others. Names of one circle share a floor."""
    names = sorted(names)
    one_of = {name: name for name in names}
    for circle in circles(names, drawn):
        one_of |= dict.fromkeys(circle, circle[0])
    below: dict[str, set[str]] = {one_of[name]: set() for name in names}
    for source, target in drawn:
        if one_of[source] != one_of[target]:
            below[one_of[source]].add(one_of[target])
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = max((height(other) + 1 for other in below[name]), default=0)
        return heights[name]

    levels: dict[int, list[str]] = {}
    for name in names:
        levels.setdefault(height(one_of[name]), []).append(name)
    return [levels[level] for level in sorted(levels)]


def _reachable(start: str, after: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in after[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def sizes(root: Path, *, deep: bool) -> dict[str, tuple[int, int]]:
    """Count source files and their lines by folder.

    Args:
        root: a checkout.
        deep: count by each folder that holds files, not by top-level folder.
    """
    found: dict[str, tuple[int, int]] = {}
    for folder, top in _tops(root):
        for path in sorted(top.rglob("*")):
            if path.suffix in SOURCES:
                inner = PurePosixPath(*path.relative_to(top).parts[:-1])
                name = f"{folder}/{inner}" if deep else folder
                files, lines = found.get(name, (0, 0))
                found[name] = (files + 1, lines + len(path.read_text().splitlines()))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the layout of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, metavar="CHECKOUT", help="the checkout to look at")
    parser.add_argument("--by", choices=GROUPS, default="folder", help="what an arrow connects (default: folder)")
    options = parser.parse_args(arguments)
    known = modules(options.root)
    group = GROUPS[options.by]
    names = {group(module) for module in known.values()}
    found = imports(known)
    drawn = arrows(found, group)

    counted = sizes(options.root, deep=options.by != "folder")
    print("files  lines  folder")
    for name, (files, lines) in counted.items():
        print(f"{files:5}  {lines:5}  {name}")
    print(f"{sum(files for files, _ in counted.values()):5}  {sum(lines for _, lines in counted.values()):5}  all")
    print("\nimports  arrow")
    for (source, target), count in sorted(drawn.items()):
        print(f"{count:7}  {source} -> {target}")
    print("\nfloors, the lowest first")
    for level, floor in enumerate(floors(names, drawn)):
        print(f"{level:5}  {', '.join(floor)}")
    for by in dict.fromkeys(("folder", "package", options.by, "module")):
        rounds = circles({GROUPS[by](module) for module in known.values()}, arrows(found, GROUPS[by]))
        print(f"\ncircles by {by}: {len(rounds) or 'none'}")
        for circle in rounds:
            print(f"       {', '.join(circle)}")


if __name__ == "__main__":
    main()
