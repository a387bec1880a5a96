"""`make sbom`: install each extra; write a CycloneDX bill of materials and a list of licences of what was installed.

The files are written to build/sbom. Exit status 1 if a licence is unknown or not allowed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import artifacts
import environments
import licences
from extras import ROOT, chosen

from kerneldyno.rpc.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Install each extra and write its two files; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "extras", nargs="*", metavar="EXTRA", help="base, scheduler, ...; all but the trainers' if left out"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "sbom", metavar="FOLDER")
    options = parser.parse_args(arguments)
    extras = chosen(parser, options.extras)
    options.out.mkdir(parents=True, exist_ok=True)
    faults = 0
    with tempfile.TemporaryDirectory() as scratch:
        wheel = artifacts.build(ROOT, Path(scratch), "wheel")
        for name, extra in extras.items():
            interpreter = environments.create(Path(scratch) / name)
            environments.install(interpreter, wheel, extra)
            faults += write(interpreter, name, options.out)
    return 1 if faults else 0


def write(interpreter: Path, name: str, out: Path) -> int:
    """Write the two files about one environment, print a summary, and return the number of complaints."""
    (site,) = interpreter.parents[1].glob("lib/python3*/site-packages")
    found = [one for one in licences.of_environment(site) if one.name != "kerneldyno"]
    document = bill(interpreter, found)
    (out / f"{name}.cdx.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.licences.md").write_text(table(name, found), encoding="utf-8")
    faults = list(licences.faults(found))
    print(f"{'BAD' if faults else 'ok ':3} {name:10} {len(found)} distributions: {out / f'{name}.cdx.json'}")
    for fault in faults:
        print(f"    {fault}")
    return len(faults)


def bill(interpreter: Path, found: Sequence[licences.Licence]) -> dict[str, Any]:
    """Return the bill of materials of an environment; add our version, and licences that cyclonedx-py did not find."""
    cyclonedx = str(Path(sys.executable).with_name("cyclonedx-py"))
    options = ["environment", "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--of", "JSON"]
    done = subprocess.run([cyclonedx, *options, str(interpreter)], check=True, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(done.stdout)
    document["metadata"]["component"] |= {"version": VERSION, "purl": f"pkg:pypi/kerneldyno@{VERSION}"}
    known = {one.name: one.expression for one in found}
    for component in document["components"]:
        expression = known.get(component["name"].lower().replace("_", "-").replace(".", "-"))
        if expression and not component.get("licenses"):
            component["licenses"] = [{"expression": expression}]
    return document


def table(name: str, found: Sequence[licences.Licence]) -> str:
    """Return the list of licences as a Markdown page."""
    rows = [f"| {one.name} | {one.version} | {one.expression or 'unknown'} | {one.reason} |" for one in found]
    head = [f"# What kerneldyno {VERSION} ({name}) brings along", "", "| distribution | version | licence | note |"]
    return "\n".join((*head, "| --- | --- | --- | --- |", *rows, ""))


if __name__ == "__main__":
    sys.exit(main())
