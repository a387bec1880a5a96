"""Outputs of timed calls: copied away at the end of their burst, and compared once the device is released.

The judge chooses in secret which calls it checks. It copies equally many outputs for every burst, so that the copies
cost all bursts the same, and compares them later, as far as memory allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from ...devices.base import Stopwatch
from ...devices.timed_loops import Plan
from ...shared.reference_failure import ReferenceFailure
from ..checks.candidate import Candidate
from ..memory.surplus import unjudged
from ..problems import trial
from ..results import verdict
from ..results.record import Finished
from ..runners.side import Side
from .reference_runners import ReferenceRunner
from .staging import WALL
from .supply import Batch, Supply


class TimedOutputs:
    """The kept outputs of one candidate. `supply` says how many outputs are copied for each burst."""

    def __init__(self, candidate: Candidate, reference: ReferenceRunner, supply: Supply) -> None:
        self._candidate = candidate
        self._reference = reference
        self._supply = supply
        #: Outputs as copied at the end of their bursts, each with its expected output, and whether they are the
        #: reference's.
        self._kept: list[tuple[trial.Trial, torch.Tensor, bool]] = []

    def watched(self, side: Side, plan: Plan, batch: Batch) -> dict[int, trial.Trial]:
        """Return the expected results of the slots that will be checked.

        Outputs of the candidate are checked, and those of a library baseline in place of the reference.
        """
        if side is not self._candidate and not self._reference.is_checked:
            return {}
        return {plan.slots[plan.sets.index(index)]: expected for index, expected in batch.right.items()}

    def room(self, side: Side, slots: Iterable[int], others: Sequence[int]) -> dict[int, torch.Tensor]:
        """Allocate memory for copies of some slots, and of enough `others` that all bursts copy equally many.

        This runs before the clock starts, so the allocation may take time.
        """
        outputs = side.station.outputs
        wanted = list(dict.fromkeys([*slots, *others]))[: self._supply.checks]
        return {slot: torch.empty_like(outputs[slot]) for slot in wanted}

    def snapshot(self, side: Side, copies: Mapping[int, torch.Tensor], watch: Stopwatch | None = None) -> None:
        """Copy the bytes of some slots, then stop `watch`. Only the bytes at the time of the copy count."""
        for slot, copy in copies.items():
            copy.copy_(side.station.outputs[slot])
        if watch is not None:
            watch.stop(WALL)
        self._candidate.device.synchronize()

    def keep(
        self, watched: Mapping[int, trial.Trial], copies: Mapping[int, torch.Tensor], *, of_reference: bool = False
    ) -> None:
        """Keep the copies of watched slots for `judge`, or judge them now if they take too much memory."""
        self._kept += [(expected, copies[slot], of_reference) for slot, expected in watched.items()]
        if sum(output.numel() for _, output, _ in self._kept) > unjudged(self._candidate.device):
            self.judge()

    def judge(self) -> None:
        """Compare the kept outputs with the expected ones.

        Raises Finished at the first wrong one of the candidate, and ReferenceFailure at one of a library baseline.
        """
        record, spec = self._candidate.record, self._candidate.spec
        while self._kept:
            expected, output, of_reference = self._kept.pop()
            comparison = trial.judge_bytes(expected, spec, output)
            if of_reference:
                if (wrong := comparison.mismatch) is not None:
                    raise ReferenceFailure("timing", ValueError(f"in a timed call {wrong.detail}"))
                continue
            record.note(comparison)
            if comparison.mismatch is not None:
                raise Finished(verdict.incorrect(comparison.mismatch, -1, record.report(), record.findings))
            record.timed_checks += 1
