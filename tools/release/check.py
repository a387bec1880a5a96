"""`make release-check`: check that a release is complete, the same however it is built, and usable with each extra.

It builds from a clean copy of the last commit in isolated environments, checks both files (also with twine), and
installs each extra into an environment of its own. This takes minutes, and gigabytes with the trainers' extras
(--trainers). Exit status 1: do not publish.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import artifacts
import environments
import licences
from extras import ROOT, chosen, declared, label, promised

from kerneldyno.rpc.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", action="store_true", help="also the extras verl, trl and ray")
    parser.add_argument("--only", nargs="+", metavar="EXTRA", help="base, scheduler, ...: install these alone")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where the two files are left"
    )
    options = parser.parse_args(arguments)
    extras = chosen(parser, options.only or (), trainers=options.trainers)
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _check_files(report, Path(scratch), options.out)
        for name, extra in extras.items():
            _check_install(report, Path(scratch) / name, wheel, extra)
    if left := sorted(map(label, declared().keys() - extras.values())):
        print(f"not looked at: {', '.join(left)}")
    return 1 if report.failed else 0


class Report:
    """Prints a line for each check, and its complaints below that line."""

    def __init__(self) -> None:
        self.failed = False
        self._begun = time.monotonic()

    def add(self, what: str, faults: Iterable[str]) -> None:
        """Print the result of one check, and remember whether it has complaints."""
        found = list(faults)
        self.failed = self.failed or bool(found)
        print(f"{'BAD' if found else 'ok ':3} {what} ({time.monotonic() - self._begun:.0f} s)", flush=True)
        for fault in found:
            print(f"    {fault}")
        self._begun = time.monotonic()


def _check_files(report: Report, scratch: Path, out: Path) -> Path:
    checkout = scratch / "checkout"
    _export(checkout)
    files = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    out.mkdir(exist_ok=True)
    for old in out.glob("kerneldyno-*"):
        old.unlink()
    # Without --sdist and --wheel, the wheel is built from the sdist. Users of a package index may have to do the same.
    _python("-m", "build", "--outdir", str(out), str(checkout))
    _python("-m", "build", "--wheel", "--outdir", str(scratch / "tree"), str(checkout))
    ((sdist,), (wheel,), (other,)) = (out.glob("*.tar.gz"), out.glob("*.whl"), (scratch / "tree").glob("*.whl"))
    report.add(f"{sdist.name} has every file of the commit", artifacts.faults_of_sdist(sdist, files))
    report.add(f"{wheel.name} is whole", artifacts.faults_of_wheel(wheel))
    report.add("the wheel from the sdist is the wheel from the commit", artifacts.differences(wheel, other))
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(sdist), str(wheel)],
        stdout=subprocess.PIPE,
        text=True,
    )
    report.add("twine check --strict", checked.stdout.splitlines() if checked.returncode else ())
    return wheel.resolve()


def _check_install(report: Report, where: Path, wheel: Path, extra: str) -> None:
    interpreter = environments.create(where)
    environments.install(interpreter, wheel, extra)
    modules = promised(extra, artifacts.modules(wheel))
    faults = list(environments.faults(interpreter, extra, modules, VERSION))
    (site,) = where.glob("lib/python3*/site-packages")
    found = licences.of_environment(site)
    megabytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6
    size = f"{len(found)} distributions, {megabytes:.0f} MB"
    report.add(f"{label(extra)}: {len(modules)} modules, {size}", [*faults, *licences.faults(found)])


def _export(where: Path) -> None:
    """Copy the last commit, without any other file of the checkout."""
    where.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=where, input=archive, check=True)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
