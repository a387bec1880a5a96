"""Levelling: what the reference takes in the judge, as it would take it elsewhere.

Processes differ in how long the very same kernel takes (`devices/pace.py`): a chain of twenty took 42 to 45 us, by
process. The judge is one such process and each runner another, so whoever compares a reference here with a candidate there
compares chance with chance. Runners measure their pace before a candidate is in them, and say so in their greeting; the
judge measures its own. All kernels of the reference are then counted as in a typical runner, so that speedups do not depend
on which judge it was, and as many of them as the candidate has as in the candidate's own. The candidate's times are left as
they are.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Paces that differ by more than this, in seconds, are no matter of chance: one was disturbed, and says nothing. (On one
#: H200 they were seen to differ by 0.25 us.)
_MOST = 0.3e-6
#: What two processes may differ by for each kernel, in seconds, once that is taken into account, and where it is not.
_LEFT, _UNLEVELLED = 0.05e-6, 0.2e-6


@dataclass(frozen=True, slots=True)
class Level:
    """Paces in seconds a kernel, and how many kernels they are for."""

    judge: float = 0.0
    #: The median of the runners born lately.
    typical: float = 0.0
    #: The candidate's own.
    runner: float = 0.0
    #: Kernels of the reference, and how many of them the candidate seems to have as well.
    kernels: int = 0
    shared: float = 0.0

    @property
    def unsure(self) -> float:
        """By how many seconds the reference may be longer or shorter all the same."""
        known = _known(self.typical, self.judge) and _known(self.runner, self.typical)
        return self.kernels * (_LEFT if known else _UNLEVELLED)

    @property
    def seconds(self) -> float:
        """What is added to each of the reference's times; 0 where that is not known."""
        return self.kernels * _apart(self.typical, self.judge) + self.shared * _apart(self.runner, self.typical)


def _apart(one: float, other: float) -> float:
    return one - other if _known(one, other) else 0.0


def _known(one: float, other: float) -> bool:
    return bool(one and other and abs(one - other) <= _MOST)


def shared_kernels(kernels: int, launching: float, candidate_launching: float) -> float:
    """Return how many of the reference's kernels a candidate seems to have, by the host seconds that launching a call takes.

    One at least; a runner may say what it likes of the latter, between one and all.
    """
    if not launching or not candidate_launching:
        return min(kernels, 1)
    return min(kernels, max(1.0, kernels * candidate_launching / launching))
