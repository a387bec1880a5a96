"""Sequential test-time scaling: more turns than the prompt can hold, by choosing which turns the next prompt shows.

All turns are kept outside the prompt; `choose` picks those that go in, `select` the answer in the end, and `run`
drives any policy and any way of scoring. Turns are ranked by reward, or first by speedup or coverage (`RankBy`). Plain
Python, no torch. Nothing here retries or judges: whatever `policy`
and `score` raise ends the run.
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
#: What makes one turn better than another. Equal ones are ranked by reward.
#: reward    what was paid
#: speedup   of the right answers; any other answer has 0 (KernelGYM's "performance")
#: coverage  of the right answers; any other, and one that was not profiled, has 0 (KernelGYM's "time_coverage")
RankBy = Literal["reward", "speedup", "coverage"]
#: Messages -> the response to them.
Policy = Callable[[list[Message]], Awaitable[str]]
#: Response -> what it was worth: (reward, feedback to show in the next prompt), or a `Scored`.
Score = Callable[[str], Awaitable["tuple[float, str] | Scored"]]

#: Turns in the prompt, as in the Dr. Kernel paper and KernelGYM's script.
WINDOW: Final = 4


@dataclass(frozen=True, slots=True)
class Scored:
    """What an answer was worth; `run` needs it to rank turns by something other than the reward."""

    reward: float
    feedback: str
    speedup: float = 0.0
    """Reference time / candidate time of a right answer; 0 for any other, and where it was not measured."""
    coverage: float | None = None
    """Share of device time in the candidate's own kernels, of a right answer; None for any other, and without a profile."""


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One answer, what it was worth, and what it had been shown."""

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
    """An episode so far: the messages it began with and all its turns, those that no prompt shows any more included."""

    first_messages: list[Message]
    turns: list[PlayedTurn] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """The reward of each turn."""
        return [turn.reward for turn in self.turns]

    def merits(self, rank_by: RankBy = "reward") -> list[float]:
        """Return the number that each turn is ranked by."""
        return [merit(rank_by, turn.reward, turn.speedup, turn.coverage) for turn in self.turns]

    def messages(self, keep: Sequence[int]) -> list[Message]:
        """A prompt: the first messages, then response and feedback of the turns in `keep`."""
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
        """The answer of this episode."""
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
    """Plays up to `turns` turns of one episode; run many at once with asyncio.gather.

    Args:
        first_messages: what every prompt begins with: the task.
        policy: async, messages -> response.
        score: async, response -> (reward, feedback), or `Scored`. It raises where there is no reward (lost to
            infrastructure): a turn that was not judged must not steer the choice of context.
        turns: at least 1.
        strategy: what each prompt shows, see `choose`.
        window: how many turns it shows at most.
        select: checked before the first turn, so that `history.selected(select)` cannot fail after the last.
        rank_by: what makes a turn worth showing, for "top" and "window". Other than by reward, `score` returns `Scored`.
        stop: asked after each turn; True ends the episode. Without it every turn is played, as KernelGYM does.

    Returns:
        The history, with all turns that were played.

    Raises:
        OptionError, TrainingError, NotFiniteError: see `choose`; also where `score` does not tell what turns are ranked by.
    """
    if turns < 1:
        raise TrainingError(f"turns={turns}: an episode has at least one")
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
                raise TrainingError(f"rank_by={rank_by!r}: score must return a Scored, which tells the {rank_by}")
            found = Scored(*found)
        history.turns.append(
            PlayedTurn(response, found.reward, found.feedback, tuple(shown), found.speedup, found.coverage)
        )
        if stop is not None and stop(history):
            break
    return history


def merit(rank_by: str, reward: float, speedup: float = 0.0, coverage: float | None = None) -> float:
    """Return the number that a turn is ranked by; the reward decides between equal ones. See `RankBy`.

    Args:
        rank_by: "reward", "speedup" or "coverage".
        reward, speedup, coverage: as in `Scored`.

    Raises:
        OptionError: an unknown `rank_by`.
    """
    if rank_by not in get_args(RankBy):
        raise OptionError("rank_by", rank_by, get_args(RankBy))
    if rank_by == "reward":
        return reward
    return speedup if rank_by == "speedup" else coverage or 0.0


def check_rank_by(rank_by: str, strategy: str) -> None:
    """Refuse a `rank_by` that is unknown, or that this strategy does not look at.

    Raises:
        OptionError: unknown.
        TrainingError: without effect.
    """
    merit(rank_by, 0.0)
    if rank_by != "reward" and strategy not in ("top", "window"):
        raise TrainingError(
            f"rank_by={rank_by!r} has no effect with strategy={strategy!r}; take strategy 'top' or 'window'"
        )


def choose(
    rewards: Sequence[float], *, strategy: str, window: int = WINDOW, merits: Sequence[float] | None = None
) -> list[int]:
    """Which turns the next prompt shows: indices in order of play.

    Strategies:
        all     every turn (vanilla extrapolation; ends where the context ends)
        last    the last `window` turns
        top     the `window` turns of highest reward, the later one first where rewards are equal (the paper, section 6.3)
        window  the `window` consecutive turns whose rewards have the largest sum, the earliest of several such (KernelGYM)

    With `merits`, "top" and "window" go by them, and by rewards only where merits (or their sums) are equal.

    Args:
        rewards: of each turn.
        strategy: see above.
        window: turns that are shown at most; "all" does not look at it.
        merits: of each turn, see `merit`; None: the rewards.

    Raises:
        OptionError: an unknown strategy.
        TrainingError: a window below 1.
        ShapeError: not one merit for each reward.
        NotFiniteError: a reward or a merit that is NaN or infinite.
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
    """Return the turn whose answer counts: the last, or the best by merit, then by reward, then the earliest.

    "best" chooses with the evaluator's own measurement and profits from its noise; figures made so are not comparable
    with single answers.

    Args:
        rewards: of each turn.
        how: "best" or "last".
        merits: of each turn, see `merit`; None: the rewards.

    Raises:
        OptionError: an unknown `how`.
        TrainingError: no turns.
        ShapeError: not one merit for each reward.
        NotFiniteError: a reward or a merit that is NaN or infinite.
    """
    _check_selection(how)
    if not rewards:
        raise TrainingError("no turns to select from")
    ranks = list(zip(_checked_merits(rewards, merits), rewards, strict=True))
    return len(rewards) - 1 if how == "last" else max(range(len(rewards)), key=ranks.__getitem__)


def _check(strategy: str, window: int) -> None:
    if strategy not in get_args(Strategy):
        raise OptionError("strategy", strategy, get_args(Strategy))
    if window < 1:
        raise TrainingError(f"window={window}: a prompt shows at least one turn")


def _check_selection(how: str) -> None:
    if how not in get_args(Selection):
        raise OptionError("select", how, get_args(Selection))


def _checked_merits(rewards: Sequence[float], merits: Sequence[float] | None) -> Sequence[float]:
    """The merits, or the rewards without any; finite, and one for each turn."""
    merits = rewards if merits is None else merits
    if len(merits) != len(rewards):
        raise ShapeError("merits", (len(merits),), f"({len(rewards)},), as rewards")
    for name, values in (("rewards", rewards), ("merits", merits)):
        if not all(map(math.isfinite, values)):
            raise NotFiniteError(name, "a turn was played")
    return merits
