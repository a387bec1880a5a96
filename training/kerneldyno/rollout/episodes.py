"""One episode: one sample of one problem, played turn by turn from the point where its record ends.

Each turn is recorded twice: its response as soon as it arrives, without a reward, and the whole turn once it has a reward.
If a run ends between the two, the resumed run scores the recorded response and does not ask the model again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kerneldyno.client import NoRewardError, RewardStream
from kerneldyno.rewards.trajectories import TurnRecord
from kerneldyno.rollout import prompts
from kerneldyno.rollout.config import RolloutConfig
from kerneldyno.rollout.endpoint import Endpoint, Generation, GenerationFailedError
from kerneldyno.rollout.marks import CONFIG, ENDED, GENERATION, RUN
from kerneldyno.rollout.problems import Message, Problem
from kerneldyno.rollout.recorded import light
from kerneldyno.rollout.report import verdict
from kerneldyno.rpc.profiles import require_profile
from kerneldyno.rpc.turns import turn_id
from kerneldyno.training import scaling
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse, Turn

#: Outcome of a turn whose generation failed: it has no candidate and no verdict.
GENERATION_FAILED = "GENERATION_FAILED"


@dataclass(slots=True)
class Episode:
    """State of one episode."""

    problem: Problem
    sample: int
    done: list[TurnRecord] = field(default_factory=list)
    """Turns with a reward, in order."""
    pending: TurnRecord | None = None
    """The next turn, if it has a response and no reward yet."""
    resumed: bool = False
    """Whether an earlier process generated the pending turn."""
    ended: str = ""
    """Why it ended early: "generation_failed" or "context_full"."""

    def take(self, recorded: Sequence[TurnRecord]) -> None:
        """Restore this episode from `recorded`, which has one turn for each index: the last one in the file."""
        for turn in recorded:
            if turn.turn_index != len(self.done):
                return  # turns after a gap cannot be used
            if turn.extra.get(ENDED):
                self.ended = str(turn.extra[ENDED])
            elif turn.reward is None:
                self.pending, self.resumed = turn, True
            else:
                self.done.append(turn)

    def finished(self, turns: int) -> bool:
        """Return True if the episode has ended or has all its turns."""
        return bool(self.ended) or len(self.done) >= turns


class Player:
    """Play episodes of one run.

    Args:
        config: configuration of the run.
        run: name of the run.
        endpoint: the model.
        stream: the reward stream.
        record: writes a turn to the file.
        fail: receives the record of a failed generation, to write it once the endpoint is known to be working.
    """

    def __init__(
        self,
        config: RolloutConfig,
        run: str,
        endpoint: Endpoint,
        stream: RewardStream,
        record: Callable[[TurnRecord], None],
        fail: Callable[[TurnRecord, GenerationFailedError, Endpoint], Awaitable[None]],
    ) -> None:
        self._config = config
        self._origin = {CONFIG: config.data(), RUN: run}
        self._endpoint = endpoint
        self._stream = stream
        self._record = record
        self._fail = fail

    async def play(self, episode: Episode) -> None:
        """Play an episode to its end.

        Raises:
            NoRewardError: a turn has no reward; the episode stays unfinished and can be resumed.
            EndpointRefusedError: see `kerneldyno.rollout.errors`.
            KernelDynoError: the scheduler cannot be reached, or refuses the turn.
        """
        while not episode.finished(self._config.turns):
            messages = self.messages(episode)
            if episode.pending is None and not await self._generate(episode, messages):
                return
            await self._reward(episode, messages)

    def messages(self, episode: Episode) -> list[Message]:
        """Return the prompt of the episode's next turn."""
        problem, config = episode.problem, self._config
        backend = str(problem.options.get("backend", config.backend))
        first = prompts.first_messages(problem, backend, from_data_set=config.data_set_prompts)
        rewards = [turn.reward or 0.0 for turn in episode.done]
        merits = [_merit(config.rank_by, turn) for turn in episode.done]
        chosen = scaling.choose(rewards, strategy=config.strategy, window=config.window, merits=merits)
        shown = [episode.done[index] for index in chosen]
        told = [prompts.next_message(problem, turn.feedback, correct=turn.outcome == "CORRECT") for turn in shown]
        return prompts.conversation(first, zip([turn.response for turn in shown], told, strict=True))

    async def _generate(self, episode: Episode, messages: list[Message]) -> bool:
        """Generate the next turn's response; return False if generation failed, which ends the episode."""
        seed = self._config.seed(episode.problem, episode.sample, len(episode.done))
        try:
            generation = await self._endpoint.generate(messages, self._config.sampling, seed=seed)
        except GenerationFailedError as error:
            episode.ended = error.ended
            extra = {ENDED: error.ended, "error": str(error)}
            turn = self._turn(episode, outcome=GENERATION_FAILED, messages=messages, extra=extra)
            await self._fail(turn, error, self._endpoint)
            return False
        episode.pending = self._turn(
            episode,
            response=generation.text,
            timings={"generate": generation.seconds},
            extra={GENERATION: _usage(generation, seed)},
        )
        self._record(episode.pending)
        return True

    async def _reward(self, episode: Episode, messages: list[Message]) -> None:
        pending = episode.pending
        assert pending is not None
        began = time.monotonic()
        answer = await self._score(self._message(episode, pending), resumed=episode.resumed)
        generation = {key: value for key, value in pending.extra.items() if key == GENERATION}
        turn = TurnRecord.from_answer(
            answer,
            problem_id=episode.problem.id,
            messages=messages,
            response=pending.response,
            timings={**pending.timings, "reward": time.monotonic() - began},
            model=self._config.model,
            sampling=asdict(self._config.sampling),
            extra={**self._origin, **generation},
        )
        self._record(turn)
        episode.done.append(light(turn))
        episode.pending, episode.resumed = None, False

    async def _score(self, turn: Turn, *, resumed: bool) -> StreamRewardsResponse:
        try:
            return await self._stream.score(turn)
        except NoRewardError:
            if not resumed:
                raise
        # The scheduler keeps the old outcome (lost, or cancelled by Ctrl-C) under the old id, so use a new id.
        turn.request.id = f"{turn_id(turn)}~{uuid.uuid4().hex[:8]}"
        return await self._stream.score(turn)

    def _message(self, episode: Episode, pending: TurnRecord) -> Turn:
        request = episode.problem.request(self._config.options)
        if self._config.rank_by == "coverage":
            require_profile(request)
        turn = Turn(group=episode.problem.id, sample=episode.sample, turn_index=pending.turn_index, request=request)
        turn.response_text = pending.response or " "  # an empty answer is an answer without code
        return turn

    def _turn(self, episode: Episode, extra: dict[str, Any], **known: Any) -> TurnRecord:
        """Make the record of a turn without a reward."""
        return TurnRecord(
            group=episode.problem.id,
            sample=episode.sample,
            turn_index=len(episode.done),
            problem_id=episode.problem.id,
            model=self._config.model,
            sampling=asdict(self._config.sampling),
            extra={**self._origin, **extra},
            **known,
        )


def _merit(rank_by: str, turn: TurnRecord) -> float:
    """Return the number that an earlier turn is ranked by; speedup and coverage count only for correct answers."""
    found = verdict(turn)
    speedup, coverage = (found.speedup or 0.0, found.coverage) if found.correct else (0.0, None)
    return scaling.merit(rank_by, turn.reward or 0.0, speedup, coverage)


def _usage(generation: Generation, seed: int | None) -> dict[str, Any]:
    return {
        "finish_reason": generation.finish_reason,
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "seed": seed,
        **({"reasoning": generation.reasoning} if generation.reasoning else {}),
    }
