"""A run: all episodes, some at a time, resumed from the file of trajectories and recorded in it.

What stops a run: Ctrl-C (cancellation), a scheduler that stays away, an endpoint that refuses everything or answers nobody
any more. What does not: a prompt that gets no answer (a failed generation, which ends its episode and counts as a failure)
and a turn without a reward (its episode is left unfinished; running again goes on with it).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kerneldyno.client import AsyncClient, NoRewardError
from kerneldyno.rewards.scoring import callers_fault
from kerneldyno.rewards.trajectories import TrajectoryFileError, TrajectoryWriter, TurnRecord, trajectories
from kerneldyno.rollout.config import RolloutConfig, run_name
from kerneldyno.rollout.endpoint import ContextFullError, Endpoint, EndpointError, GenerationFailedError, Sampling
from kerneldyno.rollout.episodes import Episode, Player
from kerneldyno.rollout.recorded import light_turns
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: So many failed generations, or twice as many as episodes at once, and the endpoint is asked whether it is there.
_DOUBTS = 10
_PROBE = [{"role": "user", "content": "Hello."}]


class EndpointAwayError(EndpointError):
    """The endpoint answers nothing any more; failed generations that this may be the reason of are not recorded."""


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
    """Problems that nobody can be judged by, and why: their reference failed, or their request is malformed."""
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
        if path.exists() and not path.is_file():
            raise TrajectoryFileError("is no plain file, and a run that goes on has to be read again")
        recorded = light_turns(path) if path.exists() else []
        self.name = run_name(config, recorded)
        self.counts = Counts()
        self.config = config
        self._path = path
        self._concurrency = concurrency
        self._changed = changed
        self._left = deque(Episode(problem, sample) for problem in config.problems for sample in range(config.samples))
        self._resume(recorded)
        self._doubtful: list[TurnRecord] = []  # failed generations, until it is known whose failure they are

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
            await self._settle(endpoint)

    async def _play_all(self, player: Player, endpoint: Endpoint) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._work(player, endpoint))
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _work(self, player: Player, endpoint: Endpoint) -> None:
        counts = self.counts
        while self._left:
            episode = self._left.popleft()
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
                    counts.broken[episode.problem.id] = f"the reference failed: {result.message}"
                elif result.outcome == EvalResult.PROBLEM_TOO_LARGE:
                    counts.broken[episode.problem.id] = f"too large for every device: {result.message}"
                elif callers_fault(result):
                    counts.broken[episode.problem.id] = result.message
            finally:
                counts.playing -= 1
                counts.retried = endpoint.retried
                self._changed()

    def _record(self, turn: TurnRecord) -> None:
        self._writer.write(turn)
        if turn.reward is not None:
            self.counts.turns += 1
            self.counts.correct += turn.outcome == "CORRECT"
        self._changed()

    async def _record_failure(self, turn: TurnRecord, error: GenerationFailedError, endpoint: Endpoint) -> None:
        if isinstance(error, ContextFullError):  # said by an endpoint that is there
            self._writer.write(turn)
            return
        self._doubtful.append(turn)
        if len(self._doubtful) >= max(_DOUBTS, 2 * self._concurrency):
            await self._settle(endpoint)

    async def _settle(self, endpoint: Endpoint) -> None:
        """Record the failed generations if the endpoint is there, so that it was the prompts that it could not answer."""
        if not self._doubtful:
            return
        try:
            await endpoint.generate(_PROBE, Sampling(max_tokens=1))
        except GenerationFailedError as error:
            text = f"no answer to {len(self._doubtful)} prompts, nor to a greeting: {error}"
            raise EndpointAwayError(text) from error
        for turn in self._doubtful:
            self._writer.write(turn)
        self._doubtful.clear()

    def _resume(self, recorded: list[TurnRecord]) -> None:
        known = {(found.group, found.sample): found.turns for found in trajectories(recorded)}
        counts = self.counts
        counts.episodes = len(self._left)
        for _ in range(len(self._left)):
            episode = self._left.popleft()
            episode.take(known.get((episode.problem.id, episode.sample), ()))
            counts.resumed += bool(episode.done or episode.pending or episode.ended)
            counts.turns += len(episode.done)
            counts.correct += sum(turn.outcome == "CORRECT" for turn in episode.done)
            if episode.finished(self.config.turns):
                counts.finished += 1
                counts.failed += bool(episode.ended)
            else:
                self._left.append(episode)


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    """The first plain exception of a group of groups."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
