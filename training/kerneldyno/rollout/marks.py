"""Keys that a run writes into each turn's `extra`. Reports read them, also where the extra `rollout` is not installed."""

from __future__ import annotations

#: Keys of TurnRecord.extra: the configuration, the random name of the run, data of the generation, why the episode ended.
CONFIG, RUN, GENERATION, ENDED = "rollout", "run", "generation", "ended"
