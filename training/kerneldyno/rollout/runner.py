"""A run: all episodes, some at a time, resumed from the file of trajectories and recorded in it.

What stops a run: Ctrl-C (cancellation), a scheduler that stays away, an endpoint that refuses everything or answers nobody
any more. What does not: a prompt that gets no answer (a failed generation, which ends its episode and counts as a failure)
and a turn without a reward (its episode is left unfinished; running again goes on with it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kerneldyno.client import AsyncClient, NoRewardError
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord, read, trajectories
from kerneldyno.rollout.config import RolloutConfig, run_name
from kerneldyno.rollout.endpoint import ContextFullError, Endpoint, EndpointError, GenerationFailedError
from kerneldyno.rollout.episodes import Episode, Player
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: So many prompts in a row without an answer, or twice as many as episodes at once, and the endpoint counts as gone.
_FAILURES_IN_A_ROW = 10


class EndpointAwayError(EndpointError):
    """The endpoint answers nobody any more; the failed generations since it last did are not recorded."""


@dataclass(slots=True)
class Counts:
    """How a run stands; counts are of episodes unless they say otherwise."""

    episodes: int = 0
    resumed: int = 0
    """Had turns, or had ended, before this process."""
    finished: int = 0
    playing: int = 0
    failed: int = 0
    """Ended by a failed generation."""
    without_reward: int = 0
    turns: int = 0
    """Turns rewarded, of this process or before."""
    correct: int = 0
    """Of those, CORRECT."""
    retried: int = 0
    """Requests to the endpoint that were repeated."""
    broken: dict[str, str] = field(default_factory=dict)
    """Problems whose reference failed, and how."""
    first_loss: str = ""
    """Why the first turn without a reward has none."""


class Runner:
    """One run, in one process.

    Parameters:
        path: the file of trajectories; one that exists is continued.
        concurrency: most episodes at once.
        changed: called whenever `counts` have changed.

    Raises:
        OtherConfigError, TrajectoryFileError, OSError: the file is of another run, or none of ours.
    """

    def __init__(
        self, config: RolloutConfig, path: Path, *, concurrency: int, changed: Callable[[], None] = lambda: None
    ) -> None:
        recorded = read(path).turns if path.exists() else []
        self.name = run_name(config, recorded)
        self.counts = Counts()
        self.config = config
        self._path = path
        self._concurrency = concurrency
        self._changed = changed
        self._episodes = [Episode(problem, sample) for problem in config.problems for sample in range(config.samples)]
        self._resume(recorded)
        self._doubtful: list[TurnRecord] = []  # failed generations since the endpoint last answered
        self._last_failure = ""

    async def run(self, endpoint: Endpoint, address: str) -> None:
        """Play every episode that is not finished.

        Raises:
            EndpointError: it refuses every prompt, or has gone.
            KernelDynoError: the scheduler has gone, or refuses the stream.
        """
        client = AsyncClient(address, client_id=f"rollout-{self.name}", window=max(256, self._concurrency))
        with TrajectoryWriter(self._path) as self._writer:
            async with client:
                await client.capabilities()  # fails at once where a reward would wait for a scheduler to come back
                async with client.reward_stream(self.config.reward) as stream:
                    player = Player(self.config, self.name, endpoint, stream, self._record, self._record_failure)
                    await self._play_all(player, endpoint)
            if self._doubtful and not endpoint.has_answered:
                raise self._gone()
            self._believe()

    async def _play_all(self, player: Player, endpoint: Endpoint) -> None:
        left = iter([episode for episode in self._episodes if not episode.finished(self.config.turns)])
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._work(left, player, endpoint))
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _work(self, left: Iterator[Episode], player: Player, endpoint: Endpoint) -> None:
        counts = self.counts
        for episode in left:
            if episode.problem.id in counts.broken:
                continue
            counts.playing += 1
            try:
                await player.play(episode)
                counts.finished += 1
                counts.failed += bool(episode.ended)
            except NoRewardError as error:
                counts.without_reward += 1
                counts.first_loss = counts.first_loss or str(error)
                result = error.answers[0].result
                if result.outcome == EvalResult.REFERENCE_ERROR:
                    counts.broken[episode.problem.id] = result.message
            finally:
                counts.playing -= 1
                counts.retried = endpoint.retried
                self._changed()

    def _record(self, turn: TurnRecord) -> None:
        self._writer.write(turn)
        if turn.reward is None:  # a response, just in
            self._believe()
        else:
            self.counts.turns += 1
            self.counts.correct += turn.outcome == "CORRECT"
        self._changed()

    def _record_failure(self, turn: TurnRecord, error: GenerationFailedError) -> None:
        if isinstance(error, ContextFullError):  # said by an endpoint that is there
            self._writer.write(turn)
            return
        self._doubtful.append(turn)
        self._last_failure = str(error)
        if len(self._doubtful) >= max(_FAILURES_IN_A_ROW, 2 * self._concurrency):
            raise self._gone()

    def _believe(self) -> None:
        """Record the failed generations: the endpoint is there, so it was the prompts that it could not answer."""
        for turn in self._doubtful:
            self._writer.write(turn)
        self._doubtful.clear()

    def _gone(self) -> EndpointAwayError:
        count = len(self._doubtful)
        return EndpointAwayError(f"no answer to {count} prompts in a row; the last failure: {self._last_failure}")

    def _resume(self, recorded: list[TurnRecord]) -> None:
        known = {(found.group, found.sample): found.turns for found in trajectories(recorded)}
        counts = self.counts
        counts.episodes = len(self._episodes)
        for episode in self._episodes:
            episode.take(known.get((episode.problem.id, episode.sample), ()))
            counts.resumed += bool(episode.done or episode.pending or episode.ended)
            counts.turns += len(episode.done)
            counts.correct += sum(turn.outcome == "CORRECT" for turn in episode.done)
            if episode.finished(self.config.turns):
                counts.finished += 1
                counts.failed += bool(episode.ended)


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    """The first plain exception of a group of groups."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
