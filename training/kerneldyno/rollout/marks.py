"""Names of what a run writes into each turn's `extra`: read by reports, also where the extra `rollout` is not installed."""

from __future__ import annotations

#: Keys of TurnRecord.extra: the configuration, the run's random name, and what else is known of a turn.
CONFIG, RUN, GENERATION, ENDED = "rollout", "run", "generation", "ended"
