"""Make examples for supervised fine-tuning from recorded turns, one for each correct turn: a cold start by imitation.

`trajectories.to_sft` gives whole conversations, in which every answer is trained on. Here an example is one answer and
the messages that the model saw before it. Wrong or slow answers are not imitated: earlier answers of the conversation
are context only. Turns are read with `trajectories.scan`; the command is
`kerneldyno trajectories RUN.jsonl --sft-turns OUT.jsonl`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from kerneldyno.rewards.speedups import counted_in_json
from kerneldyno.rewards.trajectories import TurnRecord


class ThresholdError(ValueError):
    """A threshold is not a number, so no turn can be compared with it."""


def turn_examples(
    turns: Iterable[TurnRecord], *, min_reward: float, min_speedup: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield an example for each turn that was CORRECT and is good enough, in the order of `turns`.

    An example has `prompt` (the messages that the model saw) and `completion` (one message: its answer), the form in
    which TRL's SFTTrainer trains on the completion alone. It also has problem_id, group, sample, turn_index, reward,
    speedup, speedup_kind, coverage and model.

    Three sorts of turns are left out: those without a reward, those that were not CORRECT (in either measurement), and
    those whose messages or answer were not recorded. If two turns have the same place because a run was repeated, the
    last counts.

    Args:
        turns: recorded turns (see `trajectories.scan`); all are read before the first example is yielded.
        min_reward: least reward of a turn.
        min_speedup: least speedup that counts, reference time / candidate time; the smaller one of two measurements.

    Raises:
        ThresholdError: a threshold is NaN.
    """
    for name, threshold in (("min_reward", min_reward), ("min_speedup", min_speedup)):
        if math.isnan(threshold):
            raise ThresholdError(f"{name} is NaN, which no turn can reach; give a number")
    return _examples(turns, min_reward, min_speedup)


def _examples(turns: Iterable[TurnRecord], min_reward: float, min_speedup: float) -> Iterator[dict[str, Any]]:
    places = {(turn.group, turn.sample, turn.turn_index): turn for turn in turns}
    for turn in places.values():
        speedup, again = turn.speedup, turn.remeasured
        right = turn.outcome == "CORRECT"
        if again:
            right = right and again.get("outcome") == "CORRECT"
            speedup = min(speedup, counted_in_json(again))
        good = turn.reward is not None and turn.reward >= min_reward and speedup >= min_speedup
        if not (right and good and turn.messages and turn.response.strip()):
            continue
        yield {
            "prompt": [dict(message) for message in turn.messages],
            "completion": [{"role": "assistant", "content": turn.response}],
            "problem_id": turn.problem_id,
            "group": turn.group,
            "sample": turn.sample,
            "turn_index": turn.turn_index,
            "reward": turn.reward,
            "speedup": speedup,
            "speedup_kind": turn.speedup_kind,
            "coverage": turn.coverage,
            "model": turn.model,
        }
