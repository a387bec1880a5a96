"""Oversampling: sample more groups than an update needs, drop those without a signal, keep the first good ones.

If all samples of a prompt have the same reward, every group-relative advantage is 0, and the update is smaller than
intended. `select_groups` chooses among existing groups; `Oversampler` also says, round by round, how many to sample. Both
are deterministic: groups count in the order in which they were requested, not in the order in which they finished.

The dropped groups of a prompt have a gradient of 0. So its expected gradient over the kept groups is the true one divided
by the probability that one of its groups is good. The direction stays; prompts that are rarely good weigh more.

verl has this built in (`algorithm.filter_groups`); this module is for training loops without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from .errors import TrainingError
from .filters import zero_variance

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups to train on, and the reason why each other group was dropped."""

    keep: Tensor
    """(E,) bool: episodes to train on."""
    kept: list[int]
    """Ids of the kept groups, in order of their first episode."""
    no_variance: list[int]
    """Ids of groups whose scores are all the same. The order here and below is that of `kept`."""
    too_small: list[int]
    """Ids of groups with fewer scores than the minimum."""
    surplus: list[int]
    """Ids of good groups beyond the wanted number."""

    def summary(self) -> str:
        """Return one line about what was dropped and why."""
        return _summary(len(self.kept), self.no_variance, self.too_small, self.surplus)


def select_groups(
    scores: Tensor,
    group: Tensor,
    wanted: int,
    *,
    mask: Tensor | None = None,
    threshold: float = 1e-3,
    min_size: int = 2,
) -> Selection:
    """Keep the first `wanted` groups whose scores differ.

    Source: KernelGYM's unified_filter and oversampling; DAPO's dynamic sampling (arXiv 2503.14476).

    Args:
        scores: (E,), any floating type: one for each episode, such as its return or the reward of its last turn.
        group: (E,) integer ids. Groups are ordered by their first episode.
        wanted: number of groups to keep, at least 1. Fewer are kept if fewer are good.
        mask, threshold, min_size: as `filters.zero_variance`.

    Returns:
        See `Selection`.

    Raises:
        ShapeError, MaskError, GroupError, NotFiniteError: see `kerneldyno.training.errors`.
        TrainingError: `wanted`, `threshold` or `min_size` cannot be used.
    """
    _check_wanted(wanted)
    found = zero_variance(scores, group, mask=mask, threshold=threshold, min_size=min_size)
    order = list(dict.fromkeys(group.tolist()))
    good, flat = set(found.kept), set(found.no_variance)
    ordered = [one for one in order if one in good]
    kept = torch.tensor(ordered[:wanted], dtype=group.dtype, device=group.device)
    return Selection(
        keep=found.keep & torch.isin(group, kept),
        kept=ordered[:wanted],
        no_variance=[one for one in order if one in flat],
        too_small=[one for one in order if one not in good and one not in flat],
        surplus=ordered[wanted:],
    )


@dataclass(frozen=True, slots=True)
class Taken(Generic[Payload]):
    """The groups of one update."""

    groups: list[Payload]
    """Payloads of the kept groups, in the order of their numbers."""
    kept: list[int]
    """Numbers of the kept groups."""
    no_variance: list[int]
    too_small: list[int]
    surplus: list[int]
    """Numbers of the dropped groups, as in `Selection`."""
    missing: int
    """Number of wanted groups that were not found within the limit `most`."""

    def summary(self) -> str:
        """Return one line about what was dropped and why."""
        short = f"; {self.missing} fewer than wanted" if self.missing else ""
        return _summary(len(self.kept), self.no_variance, self.too_small, self.surplus) + short


class Oversampler(Generic[Payload]):
    """Collect the groups of one update, round by round.

        sampler = Oversampler(wanted=16, factor=1.5)
        while numbers := sampler.ask():
            for number, episodes in play(numbers):        # in any order
                sampler.add(number, [episode.score for episode in episodes], episodes)
        taken = sampler.take()

    Args:
        wanted: number of groups that an update needs.
        factor: request this multiple of the groups that are still missing; at least 1.
        most: largest number of groups to request in all rounds together, at least `wanted`; None: 4 * wanted.
        threshold, min_size: as `filters.zero_variance`.

    Raises:
        TrainingError: an argument cannot be used.
    """

    def __init__(
        self,
        wanted: int,
        *,
        factor: float = 1.5,
        most: int | None = None,
        threshold: float = 1e-3,
        min_size: int = 2,
    ) -> None:
        _check_wanted(wanted)
        most = 4 * wanted if most is None else most
        if not (1 <= factor < math.inf) or most < wanted:
            raise TrainingError(f"factor={factor}, most={most}: expected factor >= 1 and most >= wanted={wanted}")
        self._wanted, self._factor, self._most = wanted, factor, most
        self._threshold, self._min_size = threshold, min_size
        self._asked = 0
        self._outstanding: set[int] = set()
        self._scores: dict[int, list[float | None]] = {}
        self._payloads: dict[int, Payload] = {}
        self._select()  # raises for threshold and min_size before anything is sampled

    def ask(self) -> range:
        """Return the numbers of the groups to sample next: empty once enough are good or `most` were requested.

        Raises:
            TrainingError: groups of the last round have not been added.
        """
        if self._outstanding:
            raise TrainingError(
                f"{len(self._outstanding)} groups of the last round are missing: add them before asking again"
            )
        missing = self._wanted - len(self._select().kept)
        count = min(math.ceil(missing * self._factor), self._most - self._asked)
        numbers = range(self._asked, self._asked + count)
        self._asked += count
        self._outstanding.update(numbers)
        return numbers

    def add(self, number: int, scores: Sequence[float | None], payload: Payload) -> None:
        """Add a group that `ask` requested.

        Args:
            number: number of the group, from `ask`.
            scores: one for each sample; None for a sample lost to an infrastructure failure, which is not a member.
            payload: any data of the group; `take` returns it.

        Raises:
            TrainingError: `ask` did not request this number, it was added before, or a score is NaN or infinite.
        """
        if number not in self._outstanding:
            raise TrainingError(f"group {number} was not asked for, or was added before")
        if not all(math.isfinite(score) for score in scores if score is not None):
            raise TrainingError(
                f"group {number} has a score that is NaN or infinite; give None for a sample without a score"
            )
        self._outstanding.discard(number)
        self._scores[number], self._payloads[number] = list(scores), payload

    def take(self) -> Taken[Payload]:
        """Return the groups of the update.

        Raises:
            TrainingError: groups of the last round have not been added.
        """
        if self._outstanding:
            raise TrainingError(
                f"{len(self._outstanding)} groups of the last round are missing: add them before taking any"
            )
        found = self._select()
        return Taken(
            groups=[self._payloads[number] for number in found.kept],
            kept=found.kept,
            no_variance=found.no_variance,
            too_small=found.too_small,
            surplus=found.surplus,
            missing=self._wanted - len(found.kept),
        )

    def _select(self) -> Selection:
        cells = [
            # A group without samples gets one that does not count, so that it is listed as too small.
            (number, 0.0 if score is None else score, score is not None)
            for number in sorted(self._scores)
            for score in (self._scores[number] or [None])
        ]
        return select_groups(
            torch.tensor([score for _, score, _ in cells], dtype=torch.float64),
            torch.tensor([number for number, _, _ in cells], dtype=torch.int64),
            self._wanted,
            mask=torch.tensor([counts for _, _, counts in cells], dtype=torch.bool),
            threshold=self._threshold,
            min_size=self._min_size,
        )


def _check_wanted(wanted: int) -> None:
    if wanted < 1:
        raise TrainingError(f"wanted={wanted}: an update needs at least one group")


def _summary(kept: int, no_variance: list[int], too_small: list[int], surplus: list[int]) -> str:
    asked = kept + len(no_variance) + len(too_small) + len(surplus)
    return (
        f"{kept} of {asked} groups kept; dropped: {len(no_variance)} with equal rewards, {len(too_small)} too small, "
        f"{len(surplus)} surplus"
    )
