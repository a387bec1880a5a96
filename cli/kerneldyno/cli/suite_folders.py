"""A suite: problems in KernelBench's form, each with one candidate, as requests.

Problems are read as `kerneldyno rollout` reads them (`kerneldyno.rollout.problems`), and have the same names: for a
folder the path below it, "level1/19_ReLU". A candidate is the file or the folder of that name in the folder of
candidates, or of the name that KernelBench's scripts give generated kernels, or the problem itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kerneldyno.client.candidates import holds_candidate
from kerneldyno.client.problem_names import PROBLEM_LABEL, group_of
from kerneldyno.rollout.problems import Problem, ProblemError, load
from kerneldyno.v1.evaluation_pb2 import CandidateFile, EvalRequest

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem of a suite, and the file or folder that it came from."""

    problem: Problem
    given: Path

    @property
    def name(self) -> str:
        """Return its name, which is also the id of its request."""
        return self.problem.id


def find_problems(paths: Sequence[Path]) -> list[Entry]:
    """Read the problems of files and folders, in this order.

    If there are several, the name of each becomes part of its problems' groups.

    Raises:
        ProblemError: there are none, two have the same name, or one is malformed.
        OSError: one cannot be read.
    """
    if not paths:
        raise ProblemError("give files or folders of problems")
    found: dict[str, Entry] = {}
    for path in dict.fromkeys(path.resolve() for path in paths):
        if not path.exists():
            raise ProblemError(f"{path}: no such file or folder")
        group = path.name if path.is_dir() else path.parent.name
        for problem in load(path):
            named = replace(problem, id=f"{group}/{problem.id}") if len(paths) > 1 else problem
            if named.id in found:
                raise ProblemError(f"two problems are called {named.id}: give the folder that contains both")
            found[named.id] = Entry(named, path)
    return list(found.values())


class Candidates:
    """A folder of candidates."""

    def __init__(self, folder: Path, sample: int = 0) -> None:
        """Open `folder`; `sample` is the number of KernelBench's sample of each problem.

        Raises:
            ProblemError: the folder does not exist.
        """
        if not folder.is_dir():
            raise ProblemError(f"{folder}: no such folder of candidates")
        self._folder = folder
        self._sample = sample

    def of(self, entry: Entry) -> Path | None:
        """Return the candidate of a problem, a file or a folder; None if there is none."""
        for name in (f"{entry.name}.py", self._generated(entry), f"{entry.name}.cu", entry.name):
            inside = not Path(name).is_absolute() and ".." not in Path(name).parts  # data sets choose their own names
            if name and inside and ((path := self._folder / name).is_file() or holds_candidate(path)):
                return path
        return None

    def _generated(self, entry: Entry) -> str:
        """Return the name that KernelBench's `generate_samples.py` gives: level_1_problem_19_sample_0_kernel.py."""
        level = _NUMBER.search(group_of(entry.name)) or _NUMBER.search(entry.given.name)
        number = _NUMBER.match(entry.name.rpartition("/")[2])
        if level is None or number is None:
            return ""
        return f"level_{int(level[0])}_problem_{int(number[0])}_sample_{self._sample}_kernel.py"

    def unused(self, entries: Iterable[Entry]) -> list[Path]:
        """Return the files that are no problem's candidate: a misspelt name, or another sample."""
        used = {self.of(entry) for entry in entries}
        return sorted(path for path in self._folder.rglob("*.py") if used.isdisjoint((path, *path.parents)))


def renamed(problem: Problem) -> str:
    """Return a reference as its own candidate: class Model is renamed to ModelNew."""
    name = problem.entry_point
    return re.sub(rf"\b{re.escape(name)}\b", f"{name}New", problem.reference_code)


def request_of(
    entry: Entry, candidate: str, settings: Mapping[str, Any], files: Iterable[Mapping[str, str]] = ()
) -> EvalRequest:
    """Return the request that evaluates the source `candidate`.

    Args:
        entry: the problem.
        candidate: source of the candidate; "" if it has only native sources.
        settings: fields of a request in JSON form, for those that the problem leaves open.
        files: `path` and `content` of each other file of the candidate.

    Raises:
        ProblemError: the request is malformed.
    """
    request = entry.problem.request(settings)
    request.kernel_code = candidate
    request.kernel_files.extend(CandidateFile(**file) for file in files)
    request.labels[PROBLEM_LABEL] = entry.name
    request.id = entry.name
    return request
