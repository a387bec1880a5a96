"""The reward routes of OpenRLHF (`--reward.remote_url`, earlier `--remote_rm_url`) and slime (`--rm-type remote_rm`).

OpenRLHF posts lists {"query": prompts with responses, "prompts", "labels"} and expects lists; slime posts one
{"prompt", "response", "label"} and expects a number, or with `--reward-key` an object. Both time out and repeat the request.
docs/gateway.md describes labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kerneldyno.gateway.labels import Labels
from kerneldyno.gateway.refusals import Refusal, bad_request
from kerneldyno.gateway.rewards import Rewards
from kerneldyno.rewards.extraction import continued
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse

#: Timeouts of the trainers, in seconds, minus a margin for a slow network.
OPENRLHF_SECONDS, SLIME_SECONDS = 180.0 - 10.0, 120.0 - 10.0
MAX_QUERIES = 1_024
#: A prompt is found in its query by its last characters, because the beginning may have been cut off.
_TAIL_CHARS = 200


class TrainerRoutes:
    """Answer the trainers' routes, from body to body; app.py reads requests and writes responses."""

    def __init__(self, rewards: Rewards, labels: Labels) -> None:
        self._rewards = rewards
        self._labels = labels

    async def openrlhf(self, body: Mapping[str, Any], *, with_logs: bool) -> dict[str, Any]:
        """Answer POST /get_reward.

        Args:
            body: the request.
            with_logs: fill `extra_logs`, with one list for each name. It is empty by default: some releases of OpenRLHF
                call `item()` on each of its values, which no JSON value has.

        Returns:
            `rewards` and `scores`, one for each query, and `extra_logs`.

        Raises:
            Refusal: the request is invalid, or one query or more has no reward.
        """
        queries, prompts, labels = (_texts(body, name) for name in ("query", "prompts", "labels"))
        if not len(queries) == len(prompts) == len(labels):
            raise bad_request(
                f"query, prompts and labels have {len(queries)}, {len(prompts)}, {len(labels)} entries; give equally many"
            )
        if not 1 <= len(queries) <= MAX_QUERIES:
            raise bad_request(f"query has {len(queries)} entries; allowed are 1 to {MAX_QUERIES}")
        # Check all queries before sending the first one, so that a refused request runs nothing.
        work = [
            (self._labels.problem(label, f"labels[{index}]"), response_of(query, prompt, f"query[{index}]"))
            for index, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True))
        ]
        answers = await _all(self._rewards.score(problem, text, within=OPENRLHF_SECONDS) for problem, text in work)
        rewards = [answer.reward for answer in answers]
        return {
            "rewards": rewards,
            "scores": rewards,
            "extra_logs": _logs(answers) if with_logs else {},
        }

    async def slime(self, body: Mapping[str, Any], *, as_object: bool) -> float | dict[str, Any]:
        """Answer POST /rm.

        Args:
            body: the request.
            as_object: return an object with the reward as `score`, for `--reward-key score`.

        Raises:
            Refusal: the request is invalid, or there is no reward.
        """
        response = body.get("response")
        if not isinstance(response, str):
            raise bad_request("response: missing; give the model's answer as text")
        if "label" not in body:
            raise bad_request("label: missing; set --label-key to the column that names the problem")
        problem = self._labels.problem(body["label"])
        prompt = body.get("prompt")  # a text, or a chat, whose template is unknown here
        whole = continued(prompt, response) if isinstance(prompt, str) else response
        answer = await self._rewards.score(problem, whole, within=SLIME_SECONDS)
        return described(answer) if as_object else answer.reward


def described(answer: StreamRewardsResponse) -> dict[str, Any]:
    """Return an answer as flat JSON, always with the same keys, because trainers make columns of them."""
    result = answer.result
    return {
        "score": answer.reward,
        "outcome": EvalResult.Outcome.Name(result.outcome),
        "compiled": result.compiled,
        "correct": result.correct,
        "speedup": counted_speedup(result).value,
        "coverage": result.coverage,
        "feedback": answer.feedback,
    }


def response_of(query: str, prompt: str, where: str) -> str:
    """Return the text after `prompt` in `query`, with the tag that opens the reasoning if the prompt ends with it.

    If the end of a prompt occurs several times in it (each example has the same instructions), the last one counts.

    Args:
        query: prompt and response.
        prompt: the prompt.
        where: place of the query, for error messages.

    Raises:
        Refusal: 400 if the query does not contain the end of the prompt: examples in the prompt could otherwise be taken
            for the answer.
    """
    tail = prompt[-_TAIL_CHARS:]
    start = query.find(tail)
    for _ in range(prompt.count(tail) - 1 if tail.strip() else 0):
        start = max(start, query.find(tail, start + len(tail)))
    if not tail.strip() or start < 0:
        raise bad_request(
            f"{where}: its prompt is not in it, so the answer cannot be separated from it; send prompts unchanged"
        )
    return continued(prompt, query[start + len(tail) :])


def _logs(answers: Sequence[StreamRewardsResponse]) -> dict[str, list[float]]:
    return {
        "correct": [float(answer.result.correct) for answer in answers],
        "compiled": [float(answer.result.compiled) for answer in answers],
        "speedup": [counted_speedup(answer.result).value for answer in answers],
    }


async def _all(scores: Any) -> list[StreamRewardsResponse]:
    """Return all answers, once all scores are done.

    Raises the first failure if there is one; a repeated request then gets the finished answers quickly.
    """
    outcomes = await asyncio.gather(*scores, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # Raise permanent failures first, so that a client that repeats the request sees them.
    for failure in sorted(failures, key=lambda one: isinstance(one, Refusal) and one.status == 503):
        raise failure
    return [outcome for outcome in outcomes if isinstance(outcome, StreamRewardsResponse)]


def _texts(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise bad_request(f"{name}: missing; give a list, as OpenRLHF 0.9 and later send")
    if name != "labels" and not all(isinstance(one, str) for one in value):
        raise bad_request(f"{name}: must be a list of texts")
    return value
