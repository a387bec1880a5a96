"""Rejection by coverage (PRS) in stock verl: drawn in the agent loop, carried out in the estimator.

Only the agent loop knows a turn's coverage, and only the estimator can leave a turn out of the update and in its
group's baseline. So the loop draws which turns are kept, by the rule of kerneldyno.training.coverage, and marks the
others (see marks.py); the estimator gives those an advantage of 0. Compared with KernelGYM, which masks them: the same
gradient wherever the loss of a row does not depend on how many tokens it has (seq-mean-token-sum, KernelGYM's;
token-sum) and without entropy bonus and KL loss; with token-mean or seq-mean-token-mean dropped tokens still count in
the denominator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from kerneldyno.trainers.episode import PlayedTurn, final_result
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import masks
from kerneldyno.training.coverage import RELEASE, CoverageRule, reject
from kerneldyno.training.errors import TrainingError
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import RewardSpec


def rule_of(given: Mapping[str, Any]) -> CoverageRule:
    """Returns the rule that `kerneldyno.prs` describes: the released constants, with what is given in their place."""
    known = [one.name for one in fields(CoverageRule)]
    if unknown := [name for name in given if name not in known]:
        raise SettingsError(f"kerneldyno.prs.{unknown[0]} is no setting; there are {', '.join(known)}")
    try:
        return replace(RELEASE, **given)
    except (TrainingError, TypeError) as error:
        raise SettingsError(f"kerneldyno.prs: {error}") from error


def kept(turns: Sequence[PlayedTurn], rule: CoverageRule, basis: int) -> list[bool]:
    """Draws which turns are trained on.

    A correct turn that was not profiled is kept: that its coverage is not known is not its fault.

    Args:
        turns: those of one episode.
        rule: what decides.
        basis: RewardSpec.CoverageBasis, which of the coverages.
    """
    generator = torch.Generator()
    generator.seed()  # otherwise every process would draw the same numbers
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


def _profiled(turn: PlayedTurn) -> bool:
    return final_result(turn.answer).HasField("profile")


def _coverage(turn: PlayedTurn, basis: int) -> float:
    return coverage(final_result(turn.answer), basis) if turn.correct and _profiled(turn) else 0.0


def coverage(result: EvalResult, basis: int) -> float:
    """Returns the share of the work that the candidate's own kernels did, by the definition that `basis` names."""
    if basis == RewardSpec.COVERAGE_BASIS_LAUNCHES:
        return result.profile.launch_coverage
    if basis == RewardSpec.COVERAGE_BASIS_KERNELGYM:
        return result.profile.kernelgym_coverage
    return result.profile.device_time_coverage


def void_turns(turns: Sequence[PlayedTurn]) -> list[bool]:
    """Tells which turns regressed: no reward after an earlier turn had some."""
    rewards = torch.tensor([[turn.answer.reward for turn in turns]], dtype=torch.float64)
    counts = masks.turn_mask(rewards, torch.ones_like(rewards, dtype=torch.bool))
    return [not count for count in counts[0].tolist()]
