"""What became of the turns of one episode: their rewards on tokens, and the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.trainers.marks import Mark
from kerneldyno.training import metrics
from kerneldyno.v1.evaluation_pb2 import STAGE_QUEUED, EvalResult
from kerneldyno.v1.reward_service_pb2 import Extraction, StreamRewardsResponse


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn with its answer, and where its tokens are in the episode's response."""

    text: str
    answer: StreamRewardsResponse
    begin: int
    end: int
    """Its tokens are [begin, end)."""
    seconds: float
    """From sending the turn to having its reward."""
    cut: bool = False
    """Whether the response was as long as it could be, so that it may have been cut off."""

    @property
    def correct(self) -> bool:
        """Whether the candidate was right, also when it was measured again."""
        return final_result(self.answer).outcome == EvalResult.CORRECT

    @property
    def speedup(self) -> float:
        """The speedup that counts, 0 for what is not right; the smaller one of two measurements."""
        if not self.correct:
            return 0.0
        return smaller_speedup(self.answer)

    @property
    def speedup_low(self) -> float | None:
        """Lower end of its 95 % interval; None for what is not right, and where a measurement has no interval."""
        if not self.correct:
            return None
        return smaller_low(self.answer)

    @property
    def coverage(self) -> float | None:
        """Share of device time in the candidate's own kernels; None for what is not right, and without a profile."""
        result = final_result(self.answer)
        return result.coverage if self.correct and result.HasField("coverage") else None

    @property
    def evaluation_seconds(self) -> float:
        """The part of `seconds` in which the candidate was at work rather than in a queue."""
        result = self.answer.result
        if result.cached:
            return 0.0
        spans = (span.duration.ToNanoseconds() / 1e9 for span in result.stages if span.stage != STAGE_QUEUED)
        return min(sum(spans), self.seconds)


def smaller_speedup(answer: StreamRewardsResponse) -> float:
    """Return the speedup that counts of a right answer, a ratio of times; the smaller one of two measurements."""
    return min(counted_speedup(result).value for result in _measurements(answer))


def smaller_low(answer: StreamRewardsResponse) -> float | None:
    """Return the lower end of the 95 % interval of the speedup that counts; the smaller end of two measurements.

    None where one of the measurements has no interval: nothing is sure then.
    """
    lows = [counted_speedup(result).low for result in _measurements(answer)]
    known = [low for low in lows if low is not None]
    return min(known) if len(known) == len(lows) else None


def _measurements(answer: StreamRewardsResponse) -> list[EvalResult]:
    return [answer.result, answer.remeasured] if answer.HasField("remeasured") else [answer.result]


def final_result(answer: StreamRewardsResponse) -> EvalResult:
    """The verdict that was paid for: the second measurement's, where there was one."""
    return answer.remeasured if answer.HasField("remeasured") else answer.result


def token_rewards(turns: Sequence[PlayedTurn], marks: Sequence[Mark], length: int) -> list[float]:
    """Returns a reward for each of `length` response tokens: a turn's is on its last token, its mark on its first."""
    rewards = [0.0] * length
    for turn, mark in zip(turns, marks, strict=True):
        if mark is not Mark.KEPT and turn.end - turn.begin > 1:
            rewards[turn.begin] = mark.value
        rewards[turn.end - 1] = turn.answer.reward
    return rewards


def figures(turns: Sequence[PlayedTurn], marks: Sequence[Mark]) -> dict[str, float]:
    """Returns verl's `reward_extra_info`: the same keys for every episode, each a number.

    verl averages them over validation samples, and dumps them with generations.
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
