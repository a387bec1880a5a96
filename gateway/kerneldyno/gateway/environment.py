"""OpenEnv-style episodes: reset returns the prompt of a problem, each step takes a response and returns feedback and reward.

Over a WebSocket (`/ws`, messages {"type": "reset" | "step" | "state" | "close", "data": {...}}) one connection is one
environment, as OpenEnv's clients expect. Over HTTP (`/reset`, `/step`, `/state`) the `episode_id` in the observation of
reset identifies the episode. If a step gets no reward because of an infrastructure failure, the answer is an error and the
step does not count: send it again.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from kerneldyno.client.errors import KernelDynoError
from kerneldyno.gateway.labels import Labels
from kerneldyno.gateway.refusals import Refusal, bad_request, refusal_of
from kerneldyno.gateway.rewards import Rewards
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.rollout import prompts
from kerneldyno.rollout.problems import Problem
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: Largest number of stored episodes over HTTP; the least recently used one is dropped first.
MAX_EPISODES = 10_000
MAX_EPISODE_ID_CHARS = 255
#: Error codes of WebSocket messages by HTTP status, in OpenEnv's manner.
_WS_CODES = {
    400: "VALIDATION_ERROR",
    404: "SESSION_ERROR",
    409: "SESSION_ERROR",
    422: "REFERENCE_ERROR",
    503: "UNAVAILABLE",
}


def _object_schema(required: tuple[str, ...], **properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(required),
    }


#: Answer to /schema for OpenEnv's clients: JSON schemas of action, observation and state.
SCHEMA = {
    "action": _object_schema(("response",), response="string"),
    "observation": _object_schema(
        ("prompt", "problem", "episode_id", "turn", "turns_left"),
        **{"prompt": "string", "problem": "string", "episode_id": "string", "turn": "integer", "turns_left": "integer"},
        **{"feedback": "string", "outcome": "string", "compiled": "boolean", "correct": "boolean", "speedup": "number"},
    ),
    "state": _object_schema(
        ("episode_id", "step_count"),
        **{"episode_id": "string", "step_count": "integer", "problem": "string", "turns": "integer"},
        **{"done": "boolean", "rewards": "array"},
    ),
}


@dataclass(slots=True)
class Episode:
    """State of one sample of one problem."""

    id: str
    problem: Problem
    sample: int
    turns: int
    step_count: int = 0
    done: bool = False
    rewards: list[float] = field(default_factory=list)
    judging: str | None = None
    """Response of the running step, if there is one."""

    def state(self) -> dict[str, Any]:
        """Return OpenEnv's State with additional fields."""
        return {
            "episode_id": self.id,
            "step_count": self.step_count,
            "problem": self.problem.id,
            "turns": self.turns,
            "done": self.done,
            "rewards": self.rewards,
        }


class Environment:
    """Start episodes and run their steps.

    Args:
        rewards: scores responses.
        labels: finds the problem that a client names.
        problems: problems that reset chooses from if the client names none; may be empty.
        turns: number of steps of an episode.
        backend: language that prompts ask for.
    """

    def __init__(
        self, rewards: Rewards, labels: Labels, problems: Mapping[str, Problem], *, turns: int, backend: str
    ) -> None:
        self._rewards = rewards
        self._labels = labels
        self._problems = list(problems.values())
        self._turns = turns
        self._backend = backend
        self._samples = itertools.count()

    def reset(self, data: Mapping[str, Any]) -> tuple[Episode, dict[str, Any]]:
        """Start an episode.

        Args:
            data: may have `problem` (a label), or `seed` to choose one, and `episode_id`.

        Returns:
            The episode and its first observation.

        Raises:
            Refusal: 400 for values that cannot be used.
        """
        episode_id = data.get("episode_id") or uuid.uuid4().hex
        if not isinstance(episode_id, str) or len(episode_id) > MAX_EPISODE_ID_CHARS or not episode_id.isprintable():
            raise bad_request(f"episode_id: give at most {MAX_EPISODE_ID_CHARS} printable characters")
        sample = next(self._samples)
        episode = Episode(episode_id, self._choose_problem(data, sample), sample % (1 << 31), self._turns)
        messages = prompts.first_messages(episode.problem, self._backend)
        return episode, _observed(episode, messages[-1]["content"], reward=None)

    async def step(self, episode: Episode, action: Mapping[str, Any]) -> dict[str, Any]:
        """Score an action, {"response": the model's answer}, and return the observation.

        Raises:
            Refusal: 400 or 409 if the step cannot be made; as `Rewards.score` if it has no reward.
        """
        response = action.get("response")
        if not isinstance(response, str):
            raise bad_request('action: give {"response": the model\'s answer as text}')
        if episode.done:
            raise Refusal(409, f"the episode ended after {episode.step_count} steps; reset starts another")
        if episode.judging not in (None, response):
            raise Refusal(409, "another step of this episode is running; wait for its answer, or reset another episode")
        turn, episode.judging = episode.step_count, response
        try:
            answer = await self._rewards.score(
                episode.problem, response, group=episode.problem.id, sample=episode.sample, turn=turn
            )
        finally:
            if episode.step_count == turn:
                episode.judging = None
        if episode.step_count == turn:  # otherwise a repeated request, whose step is already counted
            episode.step_count += 1
            episode.rewards.append(answer.reward)
            episode.done = episode.step_count >= episode.turns
        told = prompts.next_message(episode.problem, answer.feedback, correct=answer.result.correct)
        result = answer.result
        seen = {
            "feedback": answer.feedback,
            "outcome": EvalResult.Outcome.Name(result.outcome),
            "compiled": result.compiled,
            "correct": result.correct,
            "speedup": counted_speedup(result).value,
        }
        return _observed(episode, told["content"], reward=answer.reward, **seen)

    def _choose_problem(self, data: Mapping[str, Any], sample: int) -> Problem:
        if data.get("problem") is not None:
            return self._labels.problem(data["problem"], "problem")
        if not self._problems:
            raise bad_request(
                "problem: missing; name one, or start the gateway with --problems so that it can choose one"
            )
        seed = data.get("seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise bad_request("seed: give an integer of at least 0; it chooses the problem")
        return self._problems[(sample if seed is None else seed) % len(self._problems)]

    async def serve(self, socket: WebSocket) -> None:
        """Answer the messages of one WebSocket connection one after another until it closes."""
        await socket.accept()
        episode: Episode | None = None
        try:
            while True:
                try:
                    kind, data = _parsed(await socket.receive_text())
                    if kind == "close":
                        break
                    if kind == "reset":
                        episode, seen = self.reset(data)
                        reply = {"type": "observation", "data": seen}
                    elif kind == "state":
                        reply = {"type": "state", "data": _require_episode(episode).state()}
                    else:
                        reply = {"type": "observation", "data": await self.step(_require_episode(episode), data)}
                except Refusal as refusal:
                    reply = _error(refusal)
                except KernelDynoError as error:
                    reply = _error(refusal_of(error))
                await socket.send_json(reply)
            await socket.close()
        except (WebSocketDisconnect, KeyError):  # KeyError: a binary message, which receive_text cannot read
            return


class Episodes:
    """Store of episodes over HTTP, by id."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._known: OrderedDict[str, Episode] = OrderedDict()

    def reset(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer POST /reset."""
        episode, seen = self._environment.reset(body)
        self._known[episode.id] = episode
        while len(self._known) > MAX_EPISODES:
            self._known.popitem(last=False)
        return seen

    async def step(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer POST /step: {"action": {"response": ...}, "episode_id": ...}."""
        action = body.get("action")
        if not isinstance(action, Mapping):
            raise bad_request('action: missing; give {"action": {"response": ...}, "episode_id": ...}')
        return await self._environment.step(self._find(body.get("episode_id")), action)

    def state(self, episode_id: str | None) -> dict[str, Any]:
        """Answer GET /state?episode_id=..."""
        return self._find(episode_id).state()

    def _find(self, episode_id: Any) -> Episode:
        if not isinstance(episode_id, str) or not episode_id:
            raise bad_request("episode_id: missing; the observation of reset has it (not needed over /ws)")
        if episode_id not in self._known:
            raise Refusal(404, f"there is no episode {episode_id[:60]!r}; reset starts one")
        self._known.move_to_end(episode_id)
        return self._known[episode_id]


def _observed(episode: Episode, prompt: str, *, reward: float | None, **seen: Any) -> dict[str, Any]:
    """Return an observation as JSON. `prompt` is the next message to the model."""
    observation = {
        "prompt": prompt,
        "problem": episode.problem.id,
        "episode_id": episode.id,
        "turn": episode.step_count,
        "turns_left": episode.turns - episode.step_count,
        **seen,
    }
    return {"observation": observation, "reward": reward, "done": episode.done}


def _parsed(text: str) -> tuple[str, Mapping[str, Any]]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"not JSON: {error}") from error
    kind = message.get("type") if isinstance(message, Mapping) else None
    if kind not in ("reset", "step", "state", "close"):
        raise bad_request(f"type: {str(kind)[:60]!r} is unknown; send reset, step, state or close")
    data = {} if message.get("data") is None else message["data"]
    if not isinstance(data, Mapping):
        raise bad_request("data: must be an object")
    return kind, data


def _require_episode(episode: Episode | None) -> Episode:
    if episode is None:
        raise Refusal(409, "there is no episode yet; send reset first")
    return episode


def _error(refusal: Refusal) -> dict[str, Any]:
    data: dict[str, Any] = {"message": refusal.message, "code": _WS_CODES.get(refusal.status, "EXECUTION_ERROR")}
    if refusal.retry_seconds is not None:
        data["retry_after"] = refusal.retry_seconds
    return {"type": "error", "data": data}
