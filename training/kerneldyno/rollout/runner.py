"""A run: plays all episodes, several at a time, resumes from the trajectory file and records in it.

These end a run: Ctrl-C (cancellation), a scheduler that stays unreachable, an endpoint that refuses everything or answers
nothing any more. These do not: a prompt without an answer (a failed generation, which ends its episode and counts as a
failure) and a turn without a reward (its episode stays unfinished; the next run continues it).
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
from kerneldyno.rollout.endpoint import Endpoint, Sampling
from kerneldyno.rollout.episodes import Episode, Player
from kerneldyno.rollout.errors import ContextFullError, GenerationFailedError
from kerneldyno.rollout.errors import EndpointAwayError as EndpointAwayError
from kerneldyno.rollout.recorded import light_turns
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: After this many failed generations, or twice the number of concurrent episodes if that is more, probe the endpoint.
_FAILURES_BEFORE_PROBE = 10
_PROBE = [{"role": "user", "content": "Hello."}]


@dataclass(slots=True)
class Counts:
    """Progress of a run. Numbers are of episodes unless stated otherwise."""

    episodes: int = 0
    resumed: int = 0
    """Episodes that had turns, or had ended, before this process."""
    finished: int = 0
    playing: int = 0
    failed: int = 0
    """Episodes ended by a failed generation."""
    without_reward: int = 0
    turns: int = 0
    """Turns with a reward, of this process or before."""
    correct: int = 0
    """Those of them that are CORRECT."""
    retried: int = 0
    """Retried requests to the endpoint."""
    broken: dict[str, str] = field(default_factory=dict)
    """Problems that cannot be used, and why: the reference failed, the problem is too large, or the request is invalid."""
    first_loss: str = ""
    """Why the first turn without a reward got none."""


class Runner:
    """One run in one process.

    Args:
        config: configuration of the run.
        path: the trajectory file; an existing one is continued.
        concurrency: largest number of concurrent episodes.
        changed: called whenever `counts` changed.

    Raises:
        OtherConfigError: the file belongs to another run.
        TrajectoryFileError: the file is not a trajectory file.
        OSError: the file cannot be read.
    """

    def __init__(
        self, config: RolloutConfig, path: Path, *, concurrency: int, changed: Callable[[], None] = lambda: None
    ) -> None:
        if path.exists() and not path.is_file():
            raise TrajectoryFileError("is not a plain file; a run must be able to read its file again when it resumes")
        recorded = light_turns(path) if path.exists() else []
        self.name = run_name(config, recorded)
        self.counts = Counts()
        self.config = config
        self._path = path
        self._concurrency = concurrency
        self._changed = changed
        self._left = deque(Episode(problem, sample) for problem in config.problems for sample in range(config.samples))
        self._resume(recorded)
        self._unconfirmed: list[TurnRecord] = []  # failed generations, until a probe shows that the endpoint works

    async def run(self, endpoint: Endpoint, address: str) -> None:
        """Play every episode that is not finished.

        Raises:
            EndpointError: the endpoint refuses every prompt, or answers nothing any more.
            KernelDynoError: the scheduler cannot be reached, or refuses the stream.
        """
        client = AsyncClient(address, client_id=f"rollout-{self.name}", window=max(256, self._concurrency))
        with TrajectoryWriter(self._path) as self._writer:
            async with client:
                await (
                    client.capabilities()
                )  # fails at once if the scheduler is unreachable; scoring a turn would wait for it
                async with client.reward_stream(self.config.reward) as stream:
                    player = Player(self.config, self.name, endpoint, stream, self._record, self._record_failure)
                    await self._play_all(player, endpoint)
            await self._confirm_failures(endpoint)

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
        if isinstance(error, ContextFullError):  # only a working endpoint reports this
            self._writer.write(turn)
            return
        self._unconfirmed.append(turn)
        if len(self._unconfirmed) >= max(_FAILURES_BEFORE_PROBE, 2 * self._concurrency):
            await self._confirm_failures(endpoint)

    async def _confirm_failures(self, endpoint: Endpoint) -> None:
        """Record the failed generations if the endpoint answers a short probe, which shows that the prompts caused them.

        Raises:
            EndpointAwayError: the endpoint does not answer the probe.
        """
        if not self._unconfirmed:
            return
        try:
            await endpoint.generate(_PROBE, Sampling(max_tokens=1))
        except GenerationFailedError as error:
            text = f"no answer to {len(self._unconfirmed)} prompts, nor to a short probe: {error}"
            raise EndpointAwayError(text) from error
        for turn in self._unconfirmed:
            self._writer.write(turn)
        self._unconfirmed.clear()

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
    """Return the first exception in nested groups."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
