"""A suite: a folder of problems in KernelBench's form, each with one candidate, as requests.

A problem's name is its path below the folder, without its ending: "level1/19_ReLU". Its candidate is the file of that
name in the folder of candidates, or of the name that KernelBench's scripts give generated kernels, or the problem itself.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kerneldyno.v1.evaluation_pb2 import EvalRequest

#: Label of a request, and so of its result, by which a result of other sources or settings is told from a current one.
DIGEST_LABEL = "kerneldyno.suite"
#: Label that names a problem; the report reads it.
PROBLEM_LABEL = "problem"
_NUMBER = re.compile(r"\d+")


class SuiteError(ValueError):
    """Folders that make no suite; the message says what to give."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its name and its file."""

    name: str
    path: Path

    @property
    def group(self) -> str:
        """What comes before the last slash of the name: "level1"; empty where nothing does."""
        return group_of(self.name)


def group_of(name: str) -> str:
    """Return what comes before the last slash of a problem's name."""
    return name.rpartition("/")[0]


def find_problems(paths: Iterable[Path]) -> list[Problem]:
    """Return the problems in files and folders, in the order of their groups and numbers. Raises SuiteError."""
    given = [path.resolve() for path in paths]
    for path in given:
        if not path.exists():
            raise SuiteError(f"{path}: no such file or folder")
    if not given:
        raise SuiteError("give files or folders of problems")
    root = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in given]))
    files = {found for path in given for found in _python_files(path)}
    if not files:
        raise SuiteError(f"no problems in {', '.join(map(str, given))}: they are .py files in KernelBench's form")
    problems = [Problem(path.relative_to(root).with_suffix("").as_posix(), path) for path in files]
    return sorted(problems, key=lambda problem: _natural(problem.name))


def _python_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        below = (found.relative_to(path) for found in path.rglob("*.py"))
        yield from (path / found for found in below if not any(part.startswith(("_", ".")) for part in found.parts))


def _natural(name: str) -> list[tuple[str, list[tuple[int, str]]]]:
    """Order numbers by their size: 2_x before 10_x."""
    return [
        (re.sub(r"\d.*", "", part), [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", part)])
        for part in name.split("/")
    ]


class Candidates:
    """A folder of candidates."""

    def __init__(self, folder: Path, sample: int = 0) -> None:
        """`sample` is which of KernelBench's samples of a problem. Raises SuiteError."""
        if not folder.is_dir():
            raise SuiteError(f"{folder}: no such folder of candidates")
        self._folder = folder
        self._sample = sample

    def of(self, problem: Problem) -> Path | None:
        """Return the candidate of a problem, or None where there is none."""
        for name in (f"{problem.name}.py", f"{problem.path.stem}.py", self._generated(problem)):
            if name and (path := self._folder / name).is_file():
                return path
        return None

    def _generated(self, problem: Problem) -> str:
        """The name that KernelBench's `generate_samples.py` gives: level_1_problem_19_sample_0_kernel.py."""
        level = _NUMBER.search(problem.path.parent.name)
        number = _NUMBER.match(problem.path.stem)
        if level is None or number is None:
            return ""
        return f"level_{int(level[0])}_problem_{int(number[0])}_sample_{self._sample}_kernel.py"

    def unused(self, problems: Iterable[Problem]) -> list[Path]:
        """Return the files that are no problem's candidate: a name misspelt, or another sample."""
        used = {self.of(problem) for problem in problems}
        return sorted(path for path in _python_files(self._folder) if path not in used)


def renamed(reference: str) -> str:
    """Return a reference as its own candidate: class Model is called ModelNew."""
    return re.sub(r"\bModel\b", "ModelNew", reference)


def request_of(problem: Problem, candidate: str, settings: EvalRequest) -> EvalRequest:
    """Return the request that judges the source `candidate`, with the fields of `settings`. Raises OSError, UnicodeError."""
    request = EvalRequest()
    request.CopyFrom(settings)
    request.reference_code = problem.path.read_text(encoding="utf-8")
    request.kernel_code = candidate
    request.labels[PROBLEM_LABEL] = problem.name
    digest = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
    request.labels[DIGEST_LABEL] = digest[:16]
    request.id = problem.name
    return request
