"""Tests of scaling: which turns a prompt shows, which answer counts, and whole episodes of a policy that uses
feedback."""

from __future__ import annotations

import asyncio
import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldyno.training.errors import NotFiniteError, OptionError, ShapeError, TrainingError
from kerneldyno.training.scaling import History, Message, PlayedTurn, Scored, check_rank_by, choose, merit, run, select

pytestmark = pytest.mark.pure

TASK: list[Message] = [{"role": "user", "content": "task"}]
REWARDS = [0.0, 3.0, 1.0, 3.0, 2.0, 0.0]


def test_choose_by_hand() -> None:
    assert choose(REWARDS, strategy="all", window=2) == [0, 1, 2, 3, 4, 5]
    assert choose(REWARDS, strategy="last", window=2) == [4, 5]
    assert choose(REWARDS, strategy="top", window=3) == [1, 3, 4]
    assert choose(REWARDS, strategy="window", window=3) == [1, 2, 3]
    assert choose(REWARDS, strategy="window", window=2) == [3, 4]


def test_ties() -> None:
    assert choose([0.0] * 5, strategy="top", window=2) == [3, 4]  # the latest turns
    assert choose([0.0] * 5, strategy="window", window=2) == [0, 1]  # the earliest turns
    assert choose([1.0, 0.0, 1.0, 0.0], strategy="top", window=3) == [0, 2, 3]


@pytest.mark.parametrize("strategy", ["all", "last", "top", "window"])
def test_few_turns_are_all_shown(strategy: str) -> None:
    assert choose([], strategy=strategy, window=4) == []
    assert choose([1.0, 0.0], strategy=strategy, window=4) == [0, 1]


@given(st.lists(st.integers(-3, 5), max_size=9), st.integers(1, 5))
def test_choose_against_enumeration(found: list[int], window: int) -> None:
    rewards = [float(reward) for reward in found]
    size = min(window, len(rewards))
    top = choose(rewards, strategy="top", window=window)
    assert top == sorted(set(top))
    assert len(top) == size
    assert sum(rewards[i] for i in top) == max(map(sum, combinations(rewards, size)))
    block = choose(rewards, strategy="window", window=window)
    assert block == list(range(block[0], block[0] + size) if block else [])
    if block:
        sums = [sum(rewards[start : start + size]) for start in range(len(rewards) - size + 1)]
        assert block[0] == sums.index(max(sums))


def test_select() -> None:
    assert select(REWARDS) == 1
    assert select(REWARDS, "last") == 5
    assert select([-1.0]) == 0


def test_refusals() -> None:
    with pytest.raises(OptionError, match="'all', 'last', 'top', 'window'"):
        choose([1.0], strategy="best", window=1)
    with pytest.raises(TrainingError, match="window=0"):
        choose([1.0], strategy="top", window=0)
    with pytest.raises(NotFiniteError):
        choose([math.nan, 1.0], strategy="top", window=1)
    with pytest.raises(NotFiniteError):
        select([math.inf])
    with pytest.raises(OptionError, match="'best', 'last'"):
        select([1.0], "first")
    with pytest.raises(TrainingError, match="no turns"):
        select([])


def test_ranking_refusals() -> None:
    with pytest.raises(OptionError, match="rank_by='time' is unknown; choose one of 'reward', 'speedup', 'coverage'"):
        merit("time", 1.0)
    with pytest.raises(OptionError, match="rank_by"):
        check_rank_by("time", "top")
    for strategy in ("all", "last"):
        with pytest.raises(TrainingError, match=f"rank_by='speedup' has no effect with strategy='{strategy}'"):
            check_rank_by("speedup", strategy)
        check_rank_by("reward", strategy)
    with pytest.raises(ShapeError, match="merits has shape"):
        choose([1.0, 2.0], strategy="top", merits=[1.0])
    with pytest.raises(NotFiniteError, match="merits"):
        choose([1.0, 2.0], strategy="top", merits=[1.0, math.nan])
    with pytest.raises(ShapeError):
        select([1.0], merits=[])


def test_merits_of_answers_that_are_wrong_or_were_not_profiled() -> None:
    assert merit("reward", 0.7, 2.0, 0.5) == 0.7
    assert merit("speedup", 0.7, 2.0, 0.5) == 2.0
    assert merit("coverage", 0.7, 2.0, 0.5) == 0.5
    assert merit("speedup", 0.7) == merit("coverage", 0.7, 2.0, None) == 0.0


def test_rewards_decide_between_equal_merits() -> None:
    assert choose([0.0, 0.2, 0.1, 0.2], strategy="top", window=2, merits=[5.0, 0.0, 0.0, 0.0]) == [0, 3]
    assert choose([0.0, 0.2, 0.1, 0.4], strategy="window", window=2, merits=[1.0, 0.0, 1.0, 0.0]) == [2, 3]
    assert select([0.1, 0.3, 0.2], merits=[1.0, 1.0, 0.5]) == 1
    assert select([0.1, 0.3, 0.2], "last", merits=[1.0, 1.0, 0.5]) == 2


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2)), max_size=8),
    st.integers(1, 4),
    st.sampled_from(["top", "window"]),
)
def test_ranking_against_enumeration(played: list[tuple[int, int]], window: int, strategy: str) -> None:
    rewards, merits = [float(reward) for reward, _ in played], [float(m) for _, m in played]
    found = choose(rewards, strategy=strategy, window=window, merits=merits)
    size, turns = min(window, len(played)), range(len(played))
    sets = (
        combinations(turns, size)
        if strategy == "top"
        else (tuple(turns[i : i + size]) for i in turns if i + size <= len(turns))
    )

    def rank(chosen: tuple[int, ...]) -> list[tuple[float, ...]]:
        if strategy == "top":
            return sorted(((merits[turn], rewards[turn], turn) for turn in chosen), reverse=True)
        return [(sum(merits[t] for t in chosen), sum(rewards[t] for t in chosen), -min(chosen, default=0))]

    assert tuple(found) == max(sets, key=rank, default=())


class Climber:
    """A policy that answers one more than the best answer it is shown, and its evaluator, which pays the number in the
    answer."""

    def __init__(self) -> None:
        self.prompts: list[list[Message]] = []

    async def answer(self, messages: list[Message]) -> str:
        await asyncio.sleep(0)
        self.prompts.append(messages)
        shown = [int(message["content"]) for message in messages if message["role"] == "assistant"]
        return str(max(shown, default=0) + 1)

    async def pay(self, response: str) -> tuple[float, str]:
        return float(response), f"paid {response}"


async def test_run_plays_every_turn_and_shows_the_best() -> None:
    climber = Climber()
    history = await run(TASK, climber.answer, climber.pay, turns=6, strategy="top", window=2)
    assert history.rewards == [1, 2, 3, 4, 5, 6]
    assert [turn.shown for turn in history.turns] == [(), (0,), (0, 1), (1, 2), (2, 3), (3, 4)]
    assert climber.prompts[3] == [
        *TASK,
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "paid 2"},
        {"role": "assistant", "content": "3"},
        {"role": "user", "content": "paid 3"},
    ]
    assert history.selected("best").response == "6"


async def test_strategy_decides_what_the_policy_can_build_on() -> None:
    """With strategy `window`, as in the release, and equal rewards, every prompt shows the first turn again."""
    climber = Climber()

    async def nothing(response: str) -> tuple[float, str]:
        return 0.0, "nothing"

    history = await run(TASK, climber.answer, nothing, turns=5, strategy="window", window=1)
    assert [turn.response for turn in history.turns] == ["1", "2", "2", "2", "2"]


async def test_run_ranks_by_speedup_and_by_coverage() -> None:
    """Rewards fall from turn to turn, speedups rise, and the second answer has the best coverage."""
    turns = iter([Scored(3.0, "a", 1.0, 0.2), Scored(2.0, "b", 2.0, 0.9), Scored(1.0, "c", 3.0, None)] * 3)

    async def policy(messages: list[Message]) -> str:
        return str(len(messages))

    async def score(response: str) -> Scored:
        return next(turns)

    for rank_by, shown in (("reward", (0,)), ("speedup", (2,)), ("coverage", (1,))):
        history = await run(TASK, policy, score, turns=3, window=1, rank_by=rank_by)  # type: ignore[arg-type]
        best = history.selected("best", rank_by)  # type: ignore[arg-type]
        assert history.turns.index(best) == shown[0]
        assert choose(history.rewards, strategy="top", window=1, merits=history.merits(rank_by)) == list(shown)  # type: ignore[arg-type]
        assert history.turns[2].shown == ((0,) if rank_by == "reward" else (1,)), "the third saw the better of two"


async def test_run_by_speedup_needs_to_be_told_it() -> None:
    climber = Climber()
    with pytest.raises(TrainingError, match="score must return a Scored, which has the speedup"):
        await run(TASK, climber.answer, climber.pay, turns=3, rank_by="speedup")
    with pytest.raises(TrainingError, match="no effect"):
        await run(TASK, climber.answer, climber.pay, turns=3, strategy="all", rank_by="speedup")


async def test_stop_is_asked_after_each_turn() -> None:
    climber = Climber()
    history = await run(TASK, climber.answer, climber.pay, turns=99, stop=lambda played: played.rewards[-1] >= 3)
    assert len(history.turns) == 3


async def test_a_turn_without_reward_ends_the_run_and_is_not_a_turn() -> None:
    climber = Climber()

    async def lost(response: str) -> tuple[float, str]:
        raise ConnectionError("evaluator is gone")

    with pytest.raises(ConnectionError):
        await run(TASK, climber.answer, lost, turns=3)
    assert len(climber.prompts) == 1


async def test_options_are_refused_before_the_first_turn() -> None:
    climber = Climber()
    bad: list[dict[str, object]] = [{"turns": 0}, {"turns": 1, "strategy": "x"}, {"turns": 1, "select": "x"}]
    for options in bad:
        with pytest.raises(TrainingError):
            await run(TASK, climber.answer, climber.pay, **options)  # type: ignore[arg-type]
    assert climber.prompts == []


async def test_many_episodes_at_once_do_not_share_messages() -> None:
    climber = Climber()
    histories = await asyncio.gather(*(run(TASK, climber.answer, climber.pay, turns=3) for _ in range(20)))
    assert all(history.rewards == [1, 2, 3] for history in histories)
    climber.prompts[0][0]["content"] = "changed"
    assert TASK[0]["content"] == "task"
    assert histories[0].first_messages[0]["content"] == "task"


def test_history_shows_turns_in_the_order_given() -> None:
    history = History(TASK, [PlayedTurn("a", 1.0, "fa", ()), PlayedTurn("b", 0.0, "fb", (0,))])
    assert [message["content"] for message in history.messages([1])] == ["task", "b", "fb"]
