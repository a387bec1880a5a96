"""The waiting line: first come first served within a priority, ageing across priorities, O(1) removal.

Requests with the same requirement and priority form one line, so that a line nobody can serve now is skipped whole.
Pure; `core` is its only user.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

from kerneldyno.scheduler.model import Evaluation, Key, Priority, Requirement, Spec


class WaitingLine:
    """Evaluations that wait for a place."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Requirement, Priority], OrderedDict[Key, Evaluation]] = {}
        self.depth: Counter[Priority] = Counter(dict.fromkeys(Priority, 0))
        self.bytes = 0

    def __len__(self) -> int:
        return self.depth.total()

    def __contains__(self, evaluation: Evaluation) -> bool:
        spec = _spec(evaluation)
        return evaluation.key in self._lines.get((spec.requirement, spec.priority), ())

    def add(self, evaluation: Evaluation, *, first: bool = False) -> None:
        """Put `evaluation` at the end of its line, or at its head when it was there before."""
        spec = _spec(evaluation)
        line = self._lines.setdefault((spec.requirement, spec.priority), OrderedDict())
        line[evaluation.key] = evaluation
        line.move_to_end(evaluation.key, last=not first)
        self.depth[spec.priority] += 1
        self.bytes += len(spec.payload)

    def remove(self, evaluation: Evaluation) -> None:
        """Take `evaluation` out."""
        spec = _spec(evaluation)
        line = self._lines[spec.requirement, spec.priority]
        del line[evaluation.key]
        if not line:
            del self._lines[spec.requirement, spec.priority]
        self.depth[spec.priority] -= 1
        self.bytes -= len(spec.payload)

    def heads(self) -> list[Evaluation]:
        """Return the first of each line, most urgent first."""
        return sorted((next(iter(line.values())) for line in self._lines.values()), key=_urgency)

    def requirements(self) -> set[Requirement]:
        """Return what is waited for."""
        return {requirement for requirement, _ in self._lines}

    def waiting_for(self, requirement: Requirement) -> Iterator[Evaluation]:
        """Yield those that wait for `requirement`."""
        for (needed, _), line in self._lines.items():
            if needed == requirement:
                yield from line.values()


def _spec(evaluation: Evaluation) -> Spec:
    assert evaluation.spec is not None, "a finished evaluation does not wait"
    return evaluation.spec


def _urgency(evaluation: Evaluation) -> float:
    return evaluation.accepted_at + _spec(evaluation).priority.value
