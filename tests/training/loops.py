"""The library's mathematics in plain Python loops over rows and tokens: slow, obvious and without library code.

Tests compare the library with it; benchmarks/training.py measures against it. Tokens are lists of rows.
`turn_of[r][l]` is the flat number of a token's turn (None: the policy did not write the token); `episode_of` maps
this number to the episode.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

Rows = Sequence[Sequence[float]]


def returns(rewards: Rows, mask: Sequence[Sequence[bool]], gamma: float) -> list[list[float]]:
    """Return the discounted sums by their definition, term by term."""
    return [
        [
            sum(gamma ** (later - turn) * row[later] for later in range(turn, len(row)) if kept[later])
            if kept[turn]
            else 0.0
            for turn in range(len(row))
        ]
        for row, kept in zip(rewards, mask, strict=True)
    ]


def trloo(returns: Rows, mask: Sequence[Sequence[bool]], group: Sequence[int]) -> list[list[float]]:
    """Return, for each cell, its return minus the mean of the other cells of its group and turn."""
    members: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for episode, (row, kept) in enumerate(zip(returns, mask, strict=True)):
        for turn, value in enumerate(row):
            if kept[turn]:
                members[group[episode], turn].append((episode, value))
    found = [[0.0] * len(row) for row in returns]
    for (_, turn), cells in members.items():
        total = math.fsum(value for _, value in cells)
        for episode, value in cells:
            others = len(cells) - 1
            found[episode][turn] = value - (total - value) / others if others else value
    return found


def weighted_leave_one_out(
    returns: Rows,
    mask: Sequence[Sequence[bool]],
    group: Sequence[int],
    weights: Rows,
    *,
    leave_one_out: bool,
) -> list[list[float]]:
    """Return, for each cell, its return minus its group's weighted mean (the plain mean where all weights are 0)."""
    found = [[0.0] * len(row) for row in returns]
    for episode, row in enumerate(returns):
        for turn, value in enumerate(row):
            if not mask[episode][turn]:
                continue
            members = [e for e in range(len(returns)) if group[e] == group[episode] and mask[e][turn]]
            used = [e for e in members if e != episode] if leave_one_out else members
            if len(members) == 1:
                found[episode][turn] = value
                continue
            share = [weights[e][turn] for e in used]
            if math.fsum(share) == 0:
                share = [1.0] * len(used)
            mean = math.fsum(w * returns[e][turn] for w, e in zip(share, used, strict=True)) / math.fsum(share)
            found[episode][turn] = value - mean
    return found


def rejection(
    train: Rows,
    rollout: Rows,
    turn_of: Sequence[Sequence[int | None]],
    episode_of: Sequence[int],
    *,
    level: str | None,
    lower: float,
    upper: float,
    veto: float | None,
    veto_level: str,
) -> list[list[bool]]:
    """Return which tokens MRS keeps, by its definition in words."""
    by_turn: dict[int, list[float]] = defaultdict(list)
    by_episode: dict[int, list[float]] = defaultdict(list)
    for new, old, turns in zip(train, rollout, turn_of, strict=True):
        for a, b, turn in zip(new, old, turns, strict=True):
            if turn is not None:
                by_turn[turn].append(a - b)
                by_episode[episode_of[turn]].append(a - b)

    @cache
    def stays(turn: int) -> bool:
        """Return whether the rules for whole turns keep this turn."""
        tokens, all_tokens = by_turn[turn], by_episode[episode_of[turn]]
        if veto is not None and min(tokens if veto_level == "turn" else all_tokens) < math.log(veto):
            return False
        if level in (None, "token"):
            return True
        log_weight = {
            "turn": lambda: math.fsum(tokens),
            "turn_geometric": lambda: math.fsum(tokens) / len(tokens),
            "sequence": lambda: math.fsum(all_tokens),
            "geometric": lambda: math.fsum(all_tokens) / len(all_tokens),
        }[level]()
        return low <= log_weight <= high

    def kept(ratio: float, turn: int) -> bool:
        return stays(turn) and (level != "token" or low <= ratio <= high)

    low, high = math.log(lower), math.log(upper)
    return [
        [turn is not None and kept(a - b, turn) for a, b, turn in zip(new, old, turns, strict=True)]
        for new, old, turns in zip(train, rollout, turn_of, strict=True)
    ]


def keep_probability(coverage: float, correct: bool, *, threshold: float = 0.3, softness: float = 0.1) -> float:
    """Return the probability that PRS keeps a turn."""
    return min(max((coverage - threshold) / softness, 0.0), 1.0) if correct else 1.0


def dual_clip(
    log_probs: Rows,
    old_log_probs: Rows,
    advantages: Rows,
    mask: Sequence[Sequence[bool]],
    aggregation: str,
    low: float = 0.2,
    high: float = 0.28,
    dual: float = 3.0,
) -> float:
    """Return the loss, computed token by token."""
    rows = []
    for new, old, gains, kept in zip(log_probs, old_log_probs, advantages, mask, strict=True):
        losses = []
        for a, b, gain, counts in zip(new, old, gains, kept, strict=True):
            if not counts:
                continue
            ratio = math.exp(a - b)
            loss = max(-gain * ratio, -gain * min(max(ratio, 1 - low), 1 + high))
            losses.append(min(loss, -gain * dual) if gain < 0 else loss)
        if losses:
            rows.append(losses)
    if not rows:
        return 0.0
    every = [loss for row in rows for loss in row]
    return {
        "token-mean": lambda: math.fsum(every) / len(every),
        "token-sum": lambda: math.fsum(every),
        "seq-mean-token-sum": lambda: math.fsum(every) / len(rows),
        "seq-mean-token-sum-norm": lambda: math.fsum(every) / len(rows) / len(mask[0]),
        "seq-mean-token-mean": lambda: math.fsum(math.fsum(row) / len(row) for row in rows) / len(rows),
    }[aggregation]()
