"""The reward routes of OpenRLHF (`--reward.remote_url`, earlier `--remote_rm_url`) and slime (`--rm-type remote_rm`).

OpenRLHF posts lists {"query": prompts with responses, "prompts", "labels"} and wants lists back; slime posts one
{"prompt", "response", "label"} and wants a number, or with `--reward-key` an object. Both give up after a while and repeat
the request; docs/gateway.md says what labels are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kerneldyno.gateway.labels import Labels
from kerneldyno.gateway.refusals import Refusal, bad
from kerneldyno.gateway.rewards import Rewards
from kerneldyno.rewards.extraction import continued
from kerneldyno.rewards.speedups import counted_speedup
from kerneldyno.v1.evaluation_pb2 import EvalResult
from kerneldyno.v1.reward_service_pb2 import StreamRewardsResponse

#: When the trainers give up, in seconds, less what a slow network may need.
OPENRLHF_SECONDS, SLIME_SECONDS = 180.0 - 10.0, 120.0 - 10.0
MAX_QUERIES = 1_024
#: A prompt is found in its query by its end: the beginning may have been cut off.
_TAIL_CHARS = 200


class TrainerRoutes:
    """Bodies in, bodies out; reading requests and writing responses is app.py's."""

    def __init__(self, rewards: Rewards, labels: Labels) -> None:
        self._rewards = rewards
        self._labels = labels

    async def openrlhf(self, body: Mapping[str, Any], *, with_logs: bool) -> dict[str, Any]:
        """Answer POST /get_reward: `rewards` and `scores` by query, and with `with_logs` a list for each log's name.

        Without, `extra_logs` is empty: some releases call `item()` on each of its values, which nothing in JSON has.
        """
        queries, prompts, labels = (_texts(body, name) for name in ("query", "prompts", "labels"))
        if not len(queries) == len(prompts) == len(labels):
            raise bad(
                f"query, prompts and labels have {len(queries)}, {len(prompts)}, {len(labels)} entries; give as many"
            )
        if not 1 <= len(queries) <= MAX_QUERIES:
            raise bad(f"query has {len(queries)} entries; allowed are 1 to {MAX_QUERIES}")
        # All are looked at before the first is sent: a request that is refused has run nothing.
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
        """Answer POST /rm: the reward; with `as_object` an object whose `score` it is, for `--reward-key score`."""
        response = body.get("response")
        if not isinstance(response, str):
            raise bad("response: missing; give the model's answer as text")
        if "label" not in body:
            raise bad("label: missing; set --label-key to the column that names the problem")
        problem = self._labels.problem(body["label"])
        prompt = body.get("prompt")  # a text, or a chat, whose template cannot be known here
        whole = continued(prompt, response) if isinstance(prompt, str) else response
        answer = await self._rewards.score(problem, whole, within=SLIME_SECONDS)
        return described(answer) if as_object else answer.reward


def described(answer: StreamRewardsResponse) -> dict[str, Any]:
    """An answer as flat JSON; the same keys each time, since trainers make columns of them."""
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
    """Return what follows `prompt` in `query`, with the tag that opens the reasoning if the prompt ends with that.

    Without knowing where the answer begins, the prompt's own examples could be taken for it; so that is refused. A prompt
    that repeats its end (each example has the same instructions) ends where it says so for the last time.
    """
    tail = prompt[-_TAIL_CHARS:]
    start = query.find(tail)
    for _ in range(prompt.count(tail) - 1 if tail.strip() else 0):
        start = max(start, query.find(tail, start + len(tail)))
    if not tail.strip() or start < 0:
        raise bad(
            f"{where}: its prompt is not in it, so the answer cannot be told from it; send prompts as they were given"
        )
    return continued(prompt, query[start + len(tail) :])


def _logs(answers: Sequence[StreamRewardsResponse]) -> dict[str, list[float]]:
    return {
        "correct": [float(answer.result.correct) for answer in answers],
        "compiled": [float(answer.result.compiled) for answer in answers],
        "speedup": [counted_speedup(answer.result).value for answer in answers],
    }


async def _all(scores: Any) -> list[StreamRewardsResponse]:
    """Every answer; when one has none, its refusal, once the others are done: what is done is then quick to get again."""
    outcomes = await asyncio.gather(*scores, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # What will not pass first: a client that repeats the request shall hear of it.
    for failure in sorted(failures, key=lambda one: isinstance(one, Refusal) and one.status == 503):
        raise failure
    return [outcome for outcome in outcomes if isinstance(outcome, StreamRewardsResponse)]


def _texts(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise bad(f"{name}: missing; give a list, as OpenRLHF 0.9 and later do")
    if name != "labels" and not all(isinstance(one, str) for one in value):
        raise bad(f"{name}: must be a list of texts")
    return value
