"""Adaptive sampling: sample each prompt in rounds until it has enough successes and failures.

Uniform sampling gives every prompt n samples. If all of them fail or all succeed, group-relative advantages are 0.
`AdaptiveSampler` stops early for prompts that have both kinds. It continues for prompts that lack one, up to a limit for
each prompt and a budget for all, so that hard prompts get the saved samples. It keeps a balanced group of each prompt's
pool. The baseline is that of the whole pool: compute advantages from all samples of the pool with any estimator of
`advantages`, and train on the rows in `Pool.kept`.

Source: Xiong et al. 2025 (arXiv 2510.04996, Reinforce-Ada): its "pos" variant stops at one success (`successes=1,
failures=0`), its "balance" variant at n / 2 of each. The budget over all prompts and `Pool.weights` are ours.

The price is bias: how often a prompt is sampled depends on its scores, and a balanced group is not a fair sample of the
policy. If rewards have two values, the direction of a prompt's expected gradient stays and its size changes; with more
values both change. `Pool.weights` correct for the balancing, but not for the early stopping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .errors import TrainingError

#: Why sampling of a prompt ended: it has enough of both kinds, it reached the limit for one prompt, or the budget is spent.
Stop = Literal["enough", "most", "budget"]


@dataclass(frozen=True, slots=True)
class AdaptiveRule:
    """When a prompt has enough samples."""

    size: int = 8
    """Largest number of samples to keep of a prompt."""
    per_round: int = 2
    """Samples of one prompt in one round. Small rounds save most; rounds as large as the average budget save nothing."""
    successes: int = 1
    failures: int = 1
    """Sampling of a prompt ends when it has this many of each. 0: do not wait for any."""
    most: int = 32
    """Largest number of samples of one prompt in all rounds, at least `size`; lost samples count."""
    budget: int | None = None
    """Largest number of samples of all prompts together; None: no limit but `most`."""
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
            raise TrainingError("threshold is NaN, so no score would be a success")


@dataclass(frozen=True, slots=True)
class Pool:
    """All samples of one prompt, and the indices of those that are kept."""

    prompt: int
    scores: list[float | None]
    """In the order in which they were added. None is a lost sample, which is never kept."""
    kept: list[int]
    """Indices into `scores`, ascending; balanced as far as the pool has enough of both kinds."""
    weights: list[float]
    """For each kept sample, the share of its kind in the pool divided by its share among the kept samples. The weighted
    mean over the kept samples then equals the mean over the pool."""
    stop: Stop

    @property
    def mean(self) -> float | None:
        """Mean score of the whole pool, which is the baseline of a group of one turn; None if there is no score."""
        known = [score for score in self.scores if score is not None]
        return math.fsum(known) / len(known) if known else None

    @property
    def has_signal(self) -> bool:
        """True if the kept scores differ, so that some advantage is not 0."""
        return len({self.scores[index] for index in self.kept}) > 1


class AdaptiveSampler:
    """Decide, round by round, how often to sample each prompt.

        sampler = AdaptiveSampler(len(prompts), AdaptiveRule(size=8, budget=8 * len(prompts)))
        while counts := sampler.ask():
            for prompt, count in counts.items():
                sampler.add(prompt, play(prompts[prompt], count))
        pools = sampler.take(generator)

    Args:
        prompts: number of prompts; they are numbered from 0.
        rule: when a prompt has enough samples.

    Raises:
        TrainingError: there are no prompts.
    """

    def __init__(self, prompts: int, rule: AdaptiveRule | None = None) -> None:
        if prompts < 1:
            raise TrainingError(f"prompts={prompts}: expected at least one")
        self._rule = AdaptiveRule() if rule is None else rule
        self._scores: list[list[float | None]] = [[] for _ in range(prompts)]
        self._outstanding: dict[int, int] = {}

    @property
    def sampled(self) -> int:
        """Number of samples added so far, of all prompts."""
        return sum(map(len, self._scores))

    def ask(self) -> dict[int, int]:
        """Return the number of samples to draw of each prompt in the next round; empty if there is no further round.

        If the budget does not suffice for all, prompts with fewer samples come first, then those with lower numbers.

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
        """Add the samples of a prompt that `ask` requested.

        Args:
            prompt: number of the prompt.
            scores: as many as `ask` requested; None for a sample that was lost to an infrastructure failure.

        Raises:
            TrainingError: `ask` did not request this prompt or this number of samples, or a score is NaN or infinite.
        """
        wanted = self._outstanding.get(prompt)
        if wanted is None:
            raise TrainingError(f"no samples of prompt {prompt} were asked for, or they were added before")
        if len(scores) != wanted:
            raise TrainingError(
                f"prompt {prompt}: {len(scores)} scores for {wanted} samples; give None for a lost sample"
            )
        if not all(math.isfinite(score) for score in scores if score is not None):
            raise TrainingError(f"prompt {prompt} has a score that is NaN or infinite; give None for a lost sample")
        del self._outstanding[prompt]
        self._scores[prompt].extend(scores)

    def take(self, generator: torch.Generator) -> list[Pool]:
        """Return the pools of all prompts, in order of their numbers.

        Args:
            generator: CPU generator that draws which samples of a kind to keep.

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

    If there are too few of one kind, all of them are kept and the rest is of the other kind.

    Args:
        scores: scores of a pool; None is never chosen.
        size: at least 2; an odd size has one failure more.
        threshold: a score above it is a success.
        generator: CPU generator.

    Returns:
        Indices, ascending, and their weights (see `Pool.weights`).

    Raises:
        TrainingError: `size` is below 2.
    """
    if size < 2:
        raise TrainingError(f"size={size}: comparing samples takes a group of at least 2")
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
