"""Scored turns of one episode: their rewards as token-level rewards, and figures for the trainer's log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.trainers.marks import Mark
from kerneldyno.training import metrics
from kerneldyno.v1.evaluation_pb2 import STAGE_QUEUED, EvalResult
from kerneldyno.v1.reward_service_pb2 import Extraction, StreamRewardsResponse


@dataclass(frozen=True, slots=True)
class EpisodeTurn:
    """A turn with its answer and the position of its tokens in the episode's response."""

    text: str
    answer: StreamRewardsResponse
    begin: int
    end: int
    """The turn has the tokens [begin, end) of the response."""
    seconds: float
    """Seconds from sending the turn to receiving its reward."""
    cut: bool = False
    """Whether the response has the largest allowed length, so that it may be cut off."""

    @property
    def correct(self) -> bool:
        """True if the candidate was correct, also in a second measurement if there was one."""
        return final_result(self.answer).outcome == EvalResult.CORRECT

    @property
    def speedup(self) -> float:
        """The speedup that counts, the smaller one of two measurements; 0 if the candidate was not correct."""
        if not self.correct:
            return 0.0
        return smaller_speedup(self.answer)

    @property
    def speedup_low(self) -> float | None:
        """Lower end of its 95 % interval; None if not correct, or if a measurement has no interval."""
        if not self.correct:
            return None
        return smaller_low(self.answer)

    @property
    def coverage(self) -> float | None:
        """Share of device time in the candidate's own kernels; None if not correct, or without a profile."""
        result = final_result(self.answer)
        return result.coverage if self.correct and result.HasField("coverage") else None

    @property
    def evaluation_seconds(self) -> float:
        """Part of `seconds` in which the candidate was evaluated, without the time in a queue."""
        result = self.answer.result
        if result.cached:
            return 0.0
        spans = (span.duration.ToNanoseconds() / 1e9 for span in result.stages if span.stage != STAGE_QUEUED)
        return min(sum(spans), self.seconds)


def smaller_speedup(answer: StreamRewardsResponse) -> float:
    """Return the speedup of a correct answer, a ratio of times; the smaller one of two measurements."""
    return min(counted_speedup(result).value for result in _measurements(answer))


def smaller_low(answer: StreamRewardsResponse) -> float | None:
    """Return the lower end of the 95 % interval of the speedup; the smaller one of two measurements.

    Returns:
        A ratio of times; None if one of the measurements has no interval, so that no win is sure.
    """
    lows = [counted_speedup(result).low for result in _measurements(answer)]
    known = [low for low in lows if low is not None]
    return min(known) if len(known) == len(lows) else None


def _measurements(answer: StreamRewardsResponse) -> list[EvalResult]:
    return [answer.result, answer.remeasured] if answer.HasField("remeasured") else [answer.result]


def final_result(answer: StreamRewardsResponse) -> EvalResult:
    """Return the verdict that the reward is based on: that of the second measurement if there was one."""
    return answer.remeasured if answer.HasField("remeasured") else answer.result


def token_rewards(turns: Sequence[EpisodeTurn], marks: Sequence[Mark], length: int) -> list[float]:
    """Return token-level rewards: the reward of a turn is on its last token, its mark on its first.

    Args:
        turns: turns of one episode.
        marks: one for each turn.
        length: number of response tokens.

    Returns:
        `length` numbers.
    """
    rewards = [0.0] * length
    for turn, mark in zip(turns, marks, strict=True):
        if mark is not Mark.KEPT and turn.end - turn.begin > 1:
            rewards[turn.begin] = mark.value
        rewards[turn.end - 1] = turn.answer.reward
    return rewards


def figures(turns: Sequence[EpisodeTurn], marks: Sequence[Mark]) -> dict[str, float]:
    """Return verl's `reward_extra_info`: the same keys for every episode, each with a number.

    verl averages them over validation samples, and writes them beside generations.
    """
    last, best = turns[-1], max(turns, key=lambda turn: turn.speedup)
    results = [final_result(turn.answer) for turn in turns]
    return {
        "score": sum(turn.answer.reward for turn in turns),
        "turns": float(len(turns)),
        "first_reward": turns[0].answer.reward,
        "last_reward": last.answer.reward,
        "best_reward": max(turn.answer.reward for turn in turns),
        "last_correct": float(last.correct),
        "any_correct": float(any(turn.correct for turn in turns)),
        "last_speedup": last.speedup,
        "best_speedup": best.speedup,
        "last_fast@1": float(metrics.is_win(last.speedup, 1.0)),
        "last_fast@1/sure": float(metrics.is_sure_win(last.speedup_low, 1.0)),
        "best_fast@1": float(metrics.is_win(best.speedup, 1.0)),
        "best_fast@1/sure": float(metrics.is_sure_win(best.speedup_low, 1.0)),
        "last_coverage": results[-1].coverage if last.correct else 0.0,
        "rejected_turns": float(sum(result.outcome == EvalResult.REJECTED for result in results)),
        "turns_without_code": float(sum(_without_code(turn.answer) for turn in turns)),
        "cut_turns": float(sum(turn.cut for turn in turns)),
        "dropped_turns": float(sum(mark is Mark.DROPPED for mark in marks)),
        "void_turns": float(sum(mark is Mark.VOID for mark in marks)),
        "cached_turns": float(sum(turn.answer.result.cached or turn.answer.result.merged for turn in turns)),
        "reward_seconds": sum(turn.seconds for turn in turns),
    }


def _without_code(answer: StreamRewardsResponse) -> bool:
    return answer.HasField("extraction") and answer.extraction.method == Extraction.METHOD_UNSPECIFIED
