"""Sequential test-time scaling: play more turns than a prompt can hold, by choosing the turns that the next prompt shows.

All turns are kept outside the prompt. `choose` picks the turns to show, `select` picks the final answer, and `run` drives
any policy and any way of scoring. Turns are ranked by reward, or first by speedup or coverage (`RankBy`). Plain Python, no
torch. This module does not retry or judge: an exception from `policy` or `score` ends the run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from .errors import NotFiniteError, OptionError, ShapeError, TrainingError

#: A chat message: `role` and `content`.
Message = dict[str, str]
Strategy = Literal["all", "last", "top", "window"]
Selection = Literal["best", "last"]
#: The number that turns are ranked by; equal ones are ranked by reward.
#: reward    the reward
#: speedup   the speedup of a correct answer; 0 for any other (KernelGYM's "performance")
#: coverage  the coverage of a correct answer; 0 for any other, and if it was not profiled (KernelGYM's "time_coverage")
RankBy = Literal["reward", "speedup", "coverage"]
#: Messages -> the model's response.
Policy = Callable[[list[Message]], Awaitable[str]]
#: Response -> (reward, feedback to show in the next prompt), or a `Scored`.
Score = Callable[[str], Awaitable["tuple[float, str] | Scored"]]

#: Turns in the prompt, as in the Dr. Kernel paper and KernelGYM's script.
WINDOW: Final = 4


@dataclass(frozen=True, slots=True)
class Scored:
    """Score of an answer. `run` needs this form to rank turns by something other than the reward."""

    reward: float
    feedback: str
    speedup: float = 0.0
    """Reference time / candidate time of a correct answer; 0 for any other, and if it was not measured."""
    coverage: float | None = None
    """Share of device time in the candidate's own kernels, for a correct answer; None for any other or without a profile."""


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One answer, its score, and the earlier turns that its prompt showed."""

    response: str
    reward: float
    feedback: str
    shown: tuple[int, ...]
    """Indices of the earlier turns that were in its prompt."""
    speedup: float = 0.0
    coverage: float | None = None
    """As in `Scored`."""


@dataclass(slots=True)
class History:
    """An episode so far: its first messages and all its turns, including those that no prompt shows any more."""

    first_messages: list[Message]
    turns: list[PlayedTurn] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """Reward of each turn."""
        return [turn.reward for turn in self.turns]

    def merits(self, rank_by: RankBy = "reward") -> list[float]:
        """Return the number that each turn is ranked by."""
        return [merit(rank_by, turn.reward, turn.speedup, turn.coverage) for turn in self.turns]

    def messages(self, keep: Sequence[int]) -> list[Message]:
        """Return a prompt: the first messages, then response and feedback of each turn in `keep`."""
        shown = [self.turns[index] for index in keep]
        return [dict(message) for message in self.first_messages] + [
            message
            for turn in shown
            for message in (
                {"role": "assistant", "content": turn.response},
                {"role": "user", "content": turn.feedback},
            )
        ]

    def selected(self, how: Selection = "best", rank_by: RankBy = "reward") -> PlayedTurn:
        """Return the turn whose answer counts for this episode, see `select`."""
        return self.turns[select(self.rewards, how, self.merits(rank_by))]


async def run(
    first_messages: Sequence[Message],
    policy: Policy,
    score: Score,
    *,
    turns: int,
    strategy: Strategy = "top",
    window: int = WINDOW,
    select: Selection = "best",
    rank_by: RankBy = "reward",
    stop: Callable[[History], bool] | None = None,
) -> History:
    """Play up to `turns` turns of one episode. To play many at once, use asyncio.gather.

    Args:
        first_messages: the messages that every prompt begins with: the task.
        policy: async, messages -> response.
        score: async, response -> (reward, feedback), or `Scored`. It must raise if there is no reward (lost to an
            infrastructure failure): a turn that was not judged must not influence the choice of context.
        turns: largest number of turns, at least 1.
        strategy: which turns each prompt shows, see `choose`.
        window: largest number of turns that a prompt shows.
        select: checked before the first turn, so that `history.selected(select)` cannot fail after the last.
        rank_by: how "top" and "window" rank turns. For anything but "reward", `score` must return `Scored`.
        stop: called after each turn; True ends the episode. Without it every turn is played, as in KernelGYM.

    Returns:
        The history, with all turns that were played.

    Raises:
        OptionError, NotFiniteError: see `choose`.
        TrainingError: see `choose`; also if `score` does not return the number that turns are ranked by.
    """
    if turns < 1:
        raise TrainingError(f"turns={turns}: an episode needs at least one turn")
    _check(strategy, window)
    _check_selection(select)
    check_rank_by(rank_by, strategy)
    history = History([dict(message) for message in first_messages])
    for _ in range(turns):
        shown = choose(history.rewards, strategy=strategy, window=window, merits=history.merits(rank_by))
        response = await policy(history.messages(shown))
        found = await score(response)
        if not isinstance(found, Scored):
            if rank_by != "reward":
                raise TrainingError(f"rank_by={rank_by!r}: score must return a Scored, which has the {rank_by}")
            found = Scored(*found)
        history.turns.append(
            PlayedTurn(response, found.reward, found.feedback, tuple(shown), found.speedup, found.coverage)
        )
        if stop is not None and stop(history):
            break
    return history


def merit(rank_by: str, reward: float, speedup: float = 0.0, coverage: float | None = None) -> float:
    """Return the number that a turn is ranked by, see `RankBy`; turns with equal numbers are ranked by reward.

    Args:
        rank_by: "reward", "speedup" or "coverage".
        reward, speedup, coverage: as in `Scored`.

    Raises:
        OptionError: `rank_by` is unknown.
    """
    if rank_by not in get_args(RankBy):
        raise OptionError("rank_by", rank_by, get_args(RankBy))
    if rank_by == "reward":
        return reward
    return speedup if rank_by == "speedup" else coverage or 0.0


def check_rank_by(rank_by: str, strategy: str) -> None:
    """Raise if `rank_by` is unknown, or if this strategy ignores it.

    Raises:
        OptionError: `rank_by` is unknown.
        TrainingError: `rank_by` has no effect with this strategy.
    """
    merit(rank_by, 0.0)
    if rank_by != "reward" and strategy not in ("top", "window"):
        raise TrainingError(
            f"rank_by={rank_by!r} has no effect with strategy={strategy!r}; take strategy 'top' or 'window'"
        )


def choose(
    rewards: Sequence[float], *, strategy: str, window: int = WINDOW, merits: Sequence[float] | None = None
) -> list[int]:
    """Choose the turns that the next prompt shows: indices in order of play.

    Strategies:
        all     every turn (vanilla extrapolation; ends when the context is full)
        last    the last `window` turns
        top     the `window` turns of highest reward, the later one first if rewards are equal (the paper, section 6.3)
        window  the `window` consecutive turns whose rewards have the largest sum, the earliest if equal (KernelGYM)

    With `merits`, "top" and "window" use these, and rewards only where merits (or their sums) are equal.

    Args:
        rewards: reward of each turn.
        strategy: see above.
        window: largest number of turns to show; "all" ignores it.
        merits: merit of each turn, see `merit`; None: the rewards.

    Raises:
        OptionError: `strategy` is unknown.
        TrainingError: `window` is below 1.
        ShapeError: `rewards` and `merits` differ in length.
        NotFiniteError: a reward or a merit is NaN or infinite.
    """
    _check(strategy, window)
    merits = _checked_merits(rewards, merits)
    turns = range(len(rewards))
    if strategy == "all" or len(turns) <= window:
        return list(turns)
    if strategy == "last":
        return list(turns[-window:])
    if strategy == "top":
        return sorted(heapq.nlargest(window, turns, key=lambda turn: (merits[turn], rewards[turn], turn)))
    sums = [
        (math.fsum(merits[start : start + window]), math.fsum(rewards[start : start + window]))
        for start in range(len(rewards) - window + 1)
    ]
    start = sums.index(max(sums))
    return list(turns[start : start + window])


def select(rewards: Sequence[float], how: str = "best", merits: Sequence[float] | None = None) -> int:
    """Return the index of the turn whose answer counts: the last, or the best by merit, then reward, then the earliest.

    "best" chooses by the evaluator's own measurement, whose noise makes it look better; its figures are not comparable with
    those of single answers.

    Args:
        rewards: reward of each turn.
        how: "best" or "last".
        merits: merit of each turn, see `merit`; None: the rewards.

    Raises:
        OptionError: `how` is unknown.
        TrainingError: there are no turns.
        ShapeError: `rewards` and `merits` differ in length.
        NotFiniteError: a reward or a merit is NaN or infinite.
    """
    _check_selection(how)
    if not rewards:
        raise TrainingError("there are no turns to select from")
    ranks = list(zip(_checked_merits(rewards, merits), rewards, strict=True))
    return len(rewards) - 1 if how == "last" else max(range(len(rewards)), key=ranks.__getitem__)


def _check(strategy: str, window: int) -> None:
    if strategy not in get_args(Strategy):
        raise OptionError("strategy", strategy, get_args(Strategy))
    if window < 1:
        raise TrainingError(f"window={window}: a prompt must show at least one turn")


def _check_selection(how: str) -> None:
    if how not in get_args(Selection):
        raise OptionError("select", how, get_args(Selection))


def _checked_merits(rewards: Sequence[float], merits: Sequence[float] | None) -> Sequence[float]:
    """Return the merits, or the rewards if there are none, after checking that all are finite and one for each turn."""
    merits = rewards if merits is None else merits
    if len(merits) != len(rewards):
        raise ShapeError("merits", (len(merits),), f"({len(rewards)},), as rewards")
    for name, values in (("rewards", rewards), ("merits", merits)):
        if not all(map(math.isfinite, values)):
            raise NotFiniteError(name, "a turn was played")
    return merits
