"""From recorded turns to examples for supervised fine-tuning, one for each right turn: a cold start by imitation.

`trajectories.to_sft` gives whole conversations, in which every answer is trained on. Here an example is one answer and
what the model saw before it, so nothing is imitated that was wrong or slow: the earlier answers of its conversation are
context. Reading: `trajectories.scan`; the command: `kerneldyno trajectories RUN.jsonl --sft-turns OUT.jsonl`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from kerneldyno.rewards.speedups import counted_in_json
from kerneldyno.rewards.trajectories import TurnRecord


class ThresholdError(ValueError):
    """A threshold that no turn can be compared with."""


def turn_examples(
    turns: Iterable[TurnRecord], *, min_reward: float, min_speedup: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield an example for each turn that was CORRECT and is good enough, in the order of `turns`.

    An example has `prompt` (the messages that the model saw) and `completion` (one message: its answer), which is the form
    in which TRL's SFTTrainer trains on the completion alone; and problem_id, group, sample, turn_index, reward, speedup,
    speedup_kind, coverage and model.

    Left out are turns without a reward, turns that were not CORRECT (also when they were measured again), and turns whose
    messages or answer were not recorded. Of turns with the same place the last counts: a run was repeated.

    Args:
        turns: see `trajectories.scan`; all are read before the first example is given.
        min_reward: least reward of a turn.
        min_speedup: least speedup that counts, reference time / candidate time; the smaller one of two measurements.

    Raises:
        ThresholdError: a threshold is NaN.
    """
    for name, threshold in (("min_reward", min_reward), ("min_speedup", min_speedup)):
        if math.isnan(threshold):
            raise ThresholdError(f"{name} is NaN, and no turn reaches it; give a number")
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
