"""Rejection by coverage (PRS) in stock verl: the agent loop draws it, the estimator applies it.

Only the agent loop knows the coverage of a turn. Only the estimator can leave a turn out of the update and keep it in its
group's baseline. So the loop draws which turns to keep, by the rule of kerneldyno.training.coverage, and marks the others
(see marks.py); the estimator gives those an advantage of 0. KernelGYM masks them instead. The gradient is the same if the
loss of a row does not depend on its number of tokens (seq-mean-token-sum, KernelGYM's; token-sum) and there is neither an
entropy bonus nor a KL loss. With token-mean or seq-mean-token-mean, dropped tokens still count in the denominator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from kerneldyno.trainers.episode import EpisodeTurn, final_result
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import masks
from kerneldyno.training.coverage import RELEASE, CoverageRule, reject
from kerneldyno.training.errors import TrainingError
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec


def rule_of(given: Mapping[str, Any]) -> CoverageRule:
    """Return the rule for the setting `kerneldyno.prs`: the released constants, overridden by the given fields.

    Raises:
        SettingsError: a field does not exist, or its value cannot be used.
    """
    known = [one.name for one in fields(CoverageRule)]
    if unknown := [name for name in given if name not in known]:
        raise SettingsError(f"kerneldyno.prs.{unknown[0]} is unknown; choose from {', '.join(known)}")
    try:
        return replace(RELEASE, **given)
    except (TrainingError, TypeError) as error:
        raise SettingsError(f"kerneldyno.prs: {error}") from error


def kept(turns: Sequence[EpisodeTurn], rule: CoverageRule, basis: int) -> list[bool]:
    """Draw which turns to train on.

    A correct turn that was not profiled is kept, because its coverage is unknown.

    Args:
        turns: turns of one episode.
        rule: the rule to apply.
        basis: RewardSpec.CoverageBasis, which chooses the definition of coverage.

    Returns:
        One bool for each turn, True to keep it.
    """
    generator = torch.Generator()
    generator.seed()  # without a random seed, every process would draw the same numbers
    correct = torch.tensor([[turn.correct for turn in turns]])
    drawn = reject(
        torch.tensor([[_coverage(turn, basis) for turn in turns]], dtype=torch.float64),
        correct,
        torch.ones_like(correct),
        rule,
        generator=generator,
        speedups=torch.tensor([[turn.speedup for turn in turns]], dtype=torch.float64),
    )
    return [bool(keep) or (turn.correct and not _profiled(turn)) for keep, turn in zip(drawn[0], turns, strict=True)]


def _profiled(turn: EpisodeTurn) -> bool:
    return final_result(turn.answer).HasField("profile")


def _coverage(turn: EpisodeTurn, basis: int) -> float:
    return coverage(final_result(turn.answer), basis) if turn.correct and _profiled(turn) else 0.0


def coverage(result: EvalResult, basis: int) -> float:
    """Return the share of the work that the candidate's own kernels did, by the definition `basis`."""
    if basis == RewardSpec.COVERAGE_BASIS_LAUNCHES:
        return result.profile.launch_coverage
    if basis == RewardSpec.COVERAGE_BASIS_KERNELGYM:
        return result.profile.kernelgym_coverage
    return result.profile.device_time_coverage


def void_turns(turns: Sequence[EpisodeTurn]) -> list[bool]:
    """Return which turns regressed: a reward of 0 or less after an earlier turn had one above 0."""
    rewards = torch.tensor([[turn.answer.reward for turn in turns]], dtype=torch.float64)
    counts = masks.turn_mask(rewards, torch.ones_like(rewards, dtype=torch.bool))
    return [not count for count in counts[0].tolist()]
