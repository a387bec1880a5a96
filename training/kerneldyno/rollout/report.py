"""Figures of a trajectory file: fast@p by turn, best by turn, the selected answers, pass@k.

Denominators are all samples of finished episodes. A turn without a verdict, because its generation failed or its episode
ended before, is a failure. Unfinished episodes (interrupted, or without a reward after an infrastructure failure) are left
out as a whole, and counted. "best" chooses by the evaluator's own measurement, so noise in the times makes it look better;
it is not comparable with figures of single answers.

Quartiles of speedup and coverage are over the correct answers that have a value: an answer that was not profiled has no
coverage, which differs from a coverage of 0.

fast@p is computed by the speedup, by the lower end of its 95 % interval, and by KernelGYM's two definitions
(kerneldyno.training.metrics). A correct answer whose record has no interval, as in files of other writers, is no sure win;
`without_interval` counts these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kerneldyno.rewards.speedups import counted_in_json, counted_interval_in_json
from kerneldyno.rewards.trajectories import Trajectory, TurnRecord
from kerneldyno.rollout.marks import CONFIG, ENDED
from kerneldyno.training import metrics, scaling

#: Ways to choose the answer of an episode.
SELECTIONS = ("last", "best")


@dataclass(frozen=True, slots=True)
class Selected:
    """Figures of the answers of all episodes, chosen in one way."""

    how: str
    correct: float
    mean_reward: float | None
    """Mean over the episodes whose answer has a reward; None if there are none."""
    fast: dict[float, float]
    """`metrics.fast_at_p` by p."""
    sure_fast: dict[float, float]
    """`metrics.sure_fast_at_p` by p."""
    pass_at: dict[int, float]
    """pass@k by k, mean over problems; a sample passes if its answer is correct."""


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """Verdict of a turn. Of two measurements, the smaller speedup and the smaller of each end of the intervals count."""

    correct: bool | None
    """None if there is no verdict."""
    speedup: float | None
    """The speedup that counts (`speedup_kind`); None if there is no verdict, 0 if it was not measured."""
    low: float | None
    """Lower end of its 95 % interval; None if one of the measurements has no interval."""
    high: float | None
    """Upper end of the interval; None in the same cases."""
    coverage: float | None
    """Share of device time in the candidate's own kernels, by the first measurement; None if not profiled."""


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one or more runs."""

    problems: int
    episodes: int
    unfinished: int
    """Unfinished episodes; no other figure includes them."""
    failed_generations: int
    """Episodes that a failed generation ended; they count as failures."""
    outcomes: dict[str, int]
    """Number of turns by outcome."""
    timed: int
    """Number of turns that are correct and have a speedup."""
    without_interval: int
    """Number of these turns whose record has no interval of the speedup; none of them is a sure win."""
    turns: list[metrics.TurnRow]
    selected: list[Selected]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return asdict(self)


def report(episodes: Iterable[Trajectory], thresholds: Sequence[float] = metrics.THRESHOLDS) -> Report:
    """Compute the report of the episodes of a file.

    Args:
        episodes: the episodes.
        thresholds: the values of p for fast@p.
    """
    known = list(episodes)
    done = [episode for episode in known if is_finished(episode)]
    verdicts = [[verdict(turn) for turn in episode.turns] for episode in done]
    timed = [one for episode in verdicts for one in episode if one.correct and one.speedup]
    return Report(
        problems=len({_problem(episode) for episode in done}),
        episodes=len(done),
        unfinished=len(known) - len(done),
        failed_generations=sum(bool(episode.turns[-1].extra.get(ENDED)) for episode in done),
        outcomes=dict(Counter(turn.outcome for episode in done for turn in episode.turns)),
        timed=len(timed),
        without_interval=sum(one.low is None for one in timed),
        turns=metrics.turn_table(
            [[one.speedup for one in episode] for episode in verdicts],
            [[one.correct for one in episode] for episode in verdicts],
            thresholds,
            [[one.low for one in episode] for episode in verdicts],
            [[one.high for one in episode] for episode in verdicts],
            [[one.coverage for one in episode] for episode in verdicts],
        ),
        selected=[_selected(how, done, thresholds) for how in SELECTIONS] if done else [],
    )


def is_finished(episode: Trajectory) -> bool:
    """Return True if an episode has all turns that its run wanted; if that number is unknown, True if it has any."""
    if not episode.turns or [turn.turn_index for turn in episode.turns] != list(range(len(episode.turns))):
        return False
    last = episode.turns[-1]
    if last.extra.get(ENDED):
        return True
    config = last.extra.get(CONFIG)
    wanted = config.get("turns", 1) if isinstance(config, dict) else 1
    return last.reward is not None and len(episode.turns) >= wanted


def _selected(how: str, episodes: Sequence[Trajectory], thresholds: Sequence[float]) -> Selected:
    chosen = [_choose(how, episode) for episode in episodes]
    verdicts = [verdict(turn) for turn in chosen]
    correct = [one.correct for one in verdicts]
    rewards = [turn.reward for turn in chosen if turn is not None and turn.reward is not None]
    by_problem: dict[str, list[bool]] = defaultdict(list)
    for episode, right in zip(episodes, correct, strict=True):
        by_problem[_problem(episode)].append(bool(right))
    fewest = min(map(len, by_problem.values()))
    return Selected(
        how=how,
        correct=sum(map(bool, correct)) / len(chosen),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        fast={p: metrics.fast_at_p([one.speedup for one in verdicts], correct, p) for p in thresholds},
        sure_fast={p: metrics.sure_fast_at_p([one.low for one in verdicts], correct, p) for p in thresholds},
        pass_at={
            k: sum(metrics.pass_at_k(len(rights), sum(rights), k) for rights in by_problem.values()) / len(by_problem)
            for k in _powers_of_two(fewest)
        },
    )


def _choose(how: str, episode: Trajectory) -> TurnRecord | None:
    """Return the answer of an episode: the last turn, even if its generation failed; or the best turn with a reward."""
    if how == "last":
        return episode.turns[-1]
    rewarded = [(turn, turn.reward) for turn in episode.turns if turn.reward is not None]
    if not rewarded:
        return None
    return rewarded[scaling.select([reward for _, reward in rewarded], how)][0]


def verdict(turn: TurnRecord | None) -> TurnVerdict:
    """Return the verdict of a turn; all fields are None for a turn without a reward.

    Raises:
        TypeError, ValueError: the second measurement in the record has values that are not numbers.
    """
    if turn is None or turn.reward is None:
        return TurnVerdict(None, None, None, None, None)
    right, speedup, low, high = turn.outcome == "CORRECT", turn.speedup, turn.speedup_low, turn.speedup_high
    if again := turn.remeasured:
        right = right and again.get("outcome") == "CORRECT"
        speedup = min(speedup, counted_in_json(again))
        second_low, second_high = counted_interval_in_json(again)
        low = None if low is None or second_low is None else min(low, second_low)
        high = None if high is None or second_high is None else min(high, second_high)
    return TurnVerdict(right, speedup, low, high, turn.coverage)


def _problem(episode: Trajectory) -> str:
    return episode.turns[0].problem_id or episode.group


def _powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4 ... and `most` itself."""
    powers = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most]
    return powers if powers[-1] == most else [*powers, most]
