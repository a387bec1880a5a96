"""Sequential test-time scaling: more turns than the prompt can hold, by choosing which turns the next prompt shows.

All turns are kept outside the prompt; `choose` picks those that go in, `select` the answer in the end, and `run`
drives any policy and any way of scoring. Plain Python, no torch. Nothing here retries or judges: whatever `policy`
and `score` raise ends the run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from .errors import NotFiniteError, OptionError, TrainingError

#: A chat message: `role` and `content`.
Message = dict[str, str]
Strategy = Literal["all", "last", "top", "window"]
Selection = Literal["best", "last"]
#: Messages -> the response to them.
Policy = Callable[[list[Message]], Awaitable[str]]
#: Response -> (reward, feedback to show in the next prompt).
Score = Callable[[str], Awaitable[tuple[float, str]]]

#: Turns in the prompt, as in the Dr. Kernel paper and KernelGYM's script.
WINDOW: Final = 4


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One answer, what it was worth, and what it had been shown."""

    response: str
    reward: float
    feedback: str
    shown: tuple[int, ...]
    """Indices of the earlier turns that were in its prompt."""


@dataclass(slots=True)
class History:
    """An episode so far: the messages it began with and all its turns, those that no prompt shows any more included."""

    first_messages: list[Message]
    turns: list[PlayedTurn] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """The reward of each turn."""
        return [turn.reward for turn in self.turns]

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

    def selected(self, how: Selection = "best") -> PlayedTurn:
        """The answer of this episode."""
        return self.turns[select(self.rewards, how)]


async def run(
    first_messages: Sequence[Message],
    policy: Policy,
    score: Score,
    *,
    turns: int,
    strategy: Strategy = "top",
    window: int = WINDOW,
    select: Selection = "best",
    stop: Callable[[History], bool] | None = None,
) -> History:
    """Plays up to `turns` turns of one episode; run many at once with asyncio.gather.

    Args:
        first_messages: what every prompt begins with: the task.
        policy: async, messages -> response.
        score: async, response -> (reward, feedback). It raises where there is no reward (lost to infrastructure): a
            turn that was not judged must not steer the choice of context.
        turns: at least 1.
        strategy: what each prompt shows, see `choose`.
        window: how many turns it shows at most.
        select: checked before the first turn, so that `history.selected(select)` cannot fail after the last.
        stop: asked after each turn; True ends the episode. Without it every turn is played, as KernelGYM does.

    Returns:
        The history, with all turns that were played.
    """
    if turns < 1:
        raise TrainingError(f"turns={turns}: an episode has at least one")
    _check(strategy, window)
    _check_selection(select)
    history = History([dict(message) for message in first_messages])
    for _ in range(turns):
        shown = choose(history.rewards, strategy=strategy, window=window)
        response = await policy(history.messages(shown))
        reward, feedback = await score(response)
        history.turns.append(PlayedTurn(response, reward, feedback, tuple(shown)))
        if stop is not None and stop(history):
            break
    return history


def choose(rewards: Sequence[float], *, strategy: str, window: int = WINDOW) -> list[int]:
    """Which turns the next prompt shows: indices in order of play.

    Strategies:
        all     every turn (vanilla extrapolation; ends where the context ends)
        last    the last `window` turns
        top     the `window` turns of highest reward, the later one first where rewards are equal (the paper, section 6.3)
        window  the `window` consecutive turns whose rewards have the largest sum, the earliest of several such (KernelGYM)

    Raises:
        OptionError: an unknown strategy.
        TrainingError: a window below 1.
        NotFiniteError: a reward that is NaN or infinite.
    """
    _check(strategy, window)
    _check_rewards(rewards)
    turns = range(len(rewards))
    if strategy == "all" or len(turns) <= window:
        return list(turns)
    if strategy == "last":
        return list(turns[-window:])
    if strategy == "top":
        return sorted(heapq.nlargest(window, turns, key=lambda turn: (rewards[turn], turn)))
    sums = [math.fsum(rewards[start : start + window]) for start in range(len(rewards) - window + 1)]
    start = sums.index(max(sums))
    return list(turns[start : start + window])


def select(rewards: Sequence[float], how: str = "best") -> int:
    """The turn whose answer counts: the last, or the first of those with the highest reward.

    "best" chooses with the evaluator's own measurement and profits from its noise; figures made so are not comparable
    with single answers.

    Raises:
        OptionError: an unknown `how`.
        TrainingError: no turns.
        NotFiniteError: a reward that is NaN or infinite.
    """
    _check_selection(how)
    if not rewards:
        raise TrainingError("no turns to select from")
    _check_rewards(rewards)
    return len(rewards) - 1 if how == "last" else max(range(len(rewards)), key=rewards.__getitem__)


def _check(strategy: str, window: int) -> None:
    if strategy not in get_args(Strategy):
        raise OptionError("strategy", strategy, get_args(Strategy))
    if window < 1:
        raise TrainingError(f"window={window}: a prompt shows at least one turn")


def _check_selection(how: str) -> None:
    if how not in get_args(Selection):
        raise OptionError("select", how, get_args(Selection))


def _check_rewards(rewards: Sequence[float]) -> None:
    if not all(map(math.isfinite, rewards)):
        raise NotFiniteError("rewards", "a turn was played")
