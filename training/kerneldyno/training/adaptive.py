"""Adaptive sampling: sample a prompt in rounds until it has enough successes and failures, and spend what that saves on
hard prompts.

Uniform sampling gives every prompt n samples; where all of them fail or all succeed, group-relative advantages are 0.
`AdaptiveSampler` stops early where both kinds are there, and goes on where one is missing, up to a limit for each prompt
and a budget for all. Of each prompt's pool a balanced group is kept. The baseline is of the whole pool: make advantages
from all samples of the pool with any estimator of `advantages`, and train on the rows in `Pool.kept`.

Source: Xiong et al. 2025 (arXiv 2510.04996, Reinforce-Ada): its "pos" variant stops at one success (`successes=1,
failures=0`), its "balance" variant at n / 2 of each. The budget over all prompts and `Pool.weights` are ours.

The price: how often a prompt is sampled depends on its scores, and a balanced group is no fair sample of the policy. With
rewards of two values the direction of a prompt's expected gradient stays and its size changes; with more values both
change. `Pool.weights` undo the balancing, but not the stopping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .errors import TrainingError

#: Why a prompt is sampled no further: it has enough of both kinds, as many samples as one may have, or all budget is spent.
Stop = Literal["enough", "most", "budget"]


@dataclass(frozen=True, slots=True)
class AdaptiveRule:
    """When a prompt has enough samples."""

    size: int = 8
    """Samples that are kept of a prompt, at most."""
    per_round: int = 2
    """Samples of one prompt in one round. Small rounds save most; as large as the average budget they save nothing."""
    successes: int = 1
    failures: int = 1
    """How many of each end the sampling of a prompt; 0: none are waited for."""
    most: int = 32
    """Samples of one prompt in all rounds, at least `size`; lost samples count."""
    budget: int | None = None
    """Samples of all prompts together; None: no limit but `most`."""
    threshold: float = 0.0
    """A sample with a score above this is a success."""

    def __post_init__(self) -> None:
        if self.size < 2 or self.per_round < 1 or self.most < self.size:
            raise TrainingError(
                f"size={self.size}, per_round={self.per_round}, most={self.most}: expected size >= 2, per_round >= 1, "
                "most >= size"
            )
        if self.successes < 0 or self.failures < 0 or not 1 <= self.successes + self.failures <= self.most:
            raise TrainingError(
                f"successes={self.successes}, failures={self.failures}: expected both >= 0, and together 1..most={self.most}"
            )
        if self.budget is not None and self.budget < 1:
            raise TrainingError(f"budget={self.budget}: expected at least one sample, or None")
        if math.isnan(self.threshold):
            raise TrainingError("threshold is NaN, and no score would be a success")


@dataclass(frozen=True, slots=True)
class Pool:
    """All samples of one prompt, and which are kept."""

    prompt: int
    scores: list[float | None]
    """In the order in which they were added; None was lost and is never kept."""
    kept: list[int]
    """Indices into `scores`, ascending; balanced as far as there are enough of both kinds."""
    weights: list[float]
    """For each kept sample, the share of its kind in the pool over its share among the kept. The weighted mean over the
    kept samples of one kind's figure is then the pool's."""
    stop: Stop

    @property
    def mean(self) -> float | None:
        """Mean score of the whole pool, the baseline of a group of one turn; None without any score."""
        known = [score for score in self.scores if score is not None]
        return math.fsum(known) / len(known) if known else None

    @property
    def has_signal(self) -> bool:
        """Whether the kept scores differ, so that some advantage is not 0."""
        return len({self.scores[index] for index in self.kept}) > 1


class AdaptiveSampler:
    """Decides, round by round, which prompts are sampled how often.

        sampler = AdaptiveSampler(len(prompts), AdaptiveRule(size=8, budget=8 * len(prompts)))
        while counts := sampler.ask():
            for prompt, count in counts.items():
                sampler.add(prompt, play(prompts[prompt], count))
        pools = sampler.take(generator)

    Args:
        prompts: how many there are; they are numbered from 0.
        rule: when a prompt has enough.

    Raises:
        TrainingError: no prompts.
    """

    def __init__(self, prompts: int, rule: AdaptiveRule | None = None) -> None:
        if prompts < 1:
            raise TrainingError(f"prompts={prompts}: expected at least one")
        self._rule = AdaptiveRule() if rule is None else rule
        self._scores: list[list[float | None]] = [[] for _ in range(prompts)]
        self._outstanding: dict[int, int] = {}

    @property
    def sampled(self) -> int:
        """Samples that were added so far, of all prompts."""
        return sum(map(len, self._scores))

    def ask(self) -> dict[int, int]:
        """Return how many samples of which prompts the next round has; empty when there is no further round.

        Where the budget does not suffice, prompts with fewer samples so far come first, then those with lower numbers.

        Raises:
            TrainingError: samples of the last round have not been added.
        """
        self._refuse_outstanding("asking again")
        left = math.inf if self._rule.budget is None else self._rule.budget - self.sampled
        waiting = [prompt for prompt, scores in enumerate(self._scores) if not self._ended(scores)]
        counts = {}
        for prompt in sorted(waiting, key=lambda one: (len(self._scores[one]), one)):
            count = min(self._rule.per_round, self._rule.most - len(self._scores[prompt]), left)
            if count < 1:
                break
            counts[prompt] = int(count)
            left -= count
        self._outstanding = dict(sorted(counts.items()))
        return dict(self._outstanding)

    def add(self, prompt: int, scores: Sequence[float | None]) -> None:
        """Hand in the samples of a prompt that `ask` wanted.

        Args:
            prompt: its number.
            scores: as many as were asked for; None for a sample that was lost to infrastructure.

        Raises:
            TrainingError: this prompt, or so many samples, were not asked for, or a score is NaN or infinite.
        """
        wanted = self._outstanding.get(prompt)
        if wanted is None:
            raise TrainingError(f"no samples of prompt {prompt} were asked for, or they were added before")
        if len(scores) != wanted:
            raise TrainingError(f"prompt {prompt}: {len(scores)} scores for {wanted} samples; a lost one has None")
        if not all(math.isfinite(score) for score in scores if score is not None):
            raise TrainingError(f"prompt {prompt} has a score that is NaN or infinite; a lost sample has None")
        del self._outstanding[prompt]
        self._scores[prompt].extend(scores)

    def take(self, generator: torch.Generator) -> list[Pool]:
        """Return the pools of all prompts, in order of their numbers.

        Args:
            generator: draws which samples of a kind are kept; a CPU's.

        Raises:
            TrainingError: samples of the last round have not been added.
        """
        self._refuse_outstanding("taking any")
        pools = []
        for prompt, scores in enumerate(self._scores):
            kept, weights = balanced(scores, self._rule.size, threshold=self._rule.threshold, generator=generator)
            pools.append(Pool(prompt, list(scores), kept, weights, self._ended(scores) or "budget"))
        return pools

    def _ended(self, scores: Sequence[float | None]) -> Stop | None:
        known = [score > self._rule.threshold for score in scores if score is not None]
        if sum(known) >= self._rule.successes and len(known) - sum(known) >= self._rule.failures:
            return "enough"
        return "most" if len(scores) >= self._rule.most else None

    def _refuse_outstanding(self, before: str) -> None:
        if self._outstanding:
            raise TrainingError(f"samples of {len(self._outstanding)} prompts are missing: add them before {before}")


def balanced(
    scores: Sequence[float | None], size: int, *, threshold: float = 0.0, generator: torch.Generator
) -> tuple[list[int], list[float]]:
    """Choose at most `size` samples, half of them successes as far as possible, each kind drawn without replacement.

    Where one kind has too few, all of them are kept and the other fills up.

    Args:
        scores: of a pool; None is never chosen.
        size: at least 2; an odd one has one failure more.
        threshold: a score above it is a success.
        generator: a CPU's.

    Returns:
        Indices, ascending, and their weights (see `Pool.weights`).

    Raises:
        TrainingError: a size below 2.
    """
    if size < 2:
        raise TrainingError(f"size={size}: a group to compare in has at least 2 samples")
    known = [index for index, score in enumerate(scores) if score is not None]
    right = [index for index in known if (scores[index] or 0.0) > threshold]
    wrong = [index for index in known if (scores[index] or 0.0) <= threshold]
    from_right = min(len(right), max(size // 2, size - len(wrong)))
    counts = (from_right, min(len(wrong), size - from_right))
    weight = {}
    for kind, count in zip((right, wrong), counts, strict=True):
        drawn = torch.randperm(len(kind), generator=generator)[:count].tolist()
        share = len(kind) / len(known) if known else 0.0
        weight.update({kind[place]: share / (count / sum(counts)) for place in drawn})
    kept = sorted(weight)
    return kept, [weight[index] for index in kept]
