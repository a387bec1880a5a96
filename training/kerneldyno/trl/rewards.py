"""A reward function for TRL's trainers, which scores one batch of completions at a time.

TRL calls it with the columns of the data set and runs it in its own event loop. All completions of a batch are evaluated
concurrently; the function returns when the last one is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kerneldyno.client import AsyncClient, StreamRewardsResponse
from kerneldyno.client.rewarding import OnMissing
from kerneldyno.trainers import settings
from kerneldyno.trainers.episode import final_result, smaller_low, smaller_speedup
from kerneldyno.trainers.turns import make_turn, problem_of, raise_for_invalid_request
from kerneldyno.training import metrics
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: A completion is text, or the chat messages that the model wrote.
Completion = str | Sequence[Mapping[str, Any]]
RewardFunc = Callable[..., Awaitable[list[float | None]]]

_WINDOW = 8192
#: Keywords that TRL passes and that are not columns of the data set.
_TRL_KEYWORDS = frozenset({"trainer_state", "log_extra", "log_metric", "environments"})


def make_reward_func(
    address: str = "",
    reward: str | Mapping[str, Any] = "drkernel",
    *,
    on_missing: OnMissing = "yield",
    name: str = "kerneldyno",
    **options: Any,
) -> RewardFunc:
    """Return a reward function for `GRPOTrainer(reward_funcs=...)` and TRL's other trainers.

    Args:
        address: HOST:PORT of the scheduler, or a list of several of which one serves; if empty, KERNELDYNO_ADDRESS or
            this machine.
        reward: name of a preset, or the fields of a RewardSpec.
        on_missing: what to do for a completion whose evaluation was lost to an infrastructure failure, after retries.
            "yield": its reward is None, and TRL leaves it out of its group. "raise": raise NoRewardError, which ends the
            training.
        name: name of the reward in TRL's logs.
        options: `request`, `turn_seconds`, `reconnect_seconds` and `retries` of kerneldyno.trainers.settings.

    Returns:
        async f(prompts, completions, **columns) -> list[float | None].

    Raises:
        SettingsError: an option cannot be used. The returned function raises it for rows without a reference and for
            requests that cannot be evaluated at all. It raises UnavailableError if the scheduler stays unreachable.
    """
    chosen = settings.load({**({"address": address} if address else {}), "reward": reward, **options})

    async def judge(
        prompts: Sequence[Any], completions: Sequence[Completion], completion_ids: Any = None, **given: Any
    ) -> list[float | None]:
        columns = {key: value for key, value in given.items() if key not in _TRL_KEYWORDS}
        seen: Counter[str] = Counter()
        turns = []
        for index, completion in enumerate(completions):
            problem = problem_of({key: value[index] for key, value in columns.items()})
            turn = make_turn(
                problem, chosen, text_of(completion), group=problem.id, sample=seen[problem.id], turn_index=0
            )
            seen[problem.id] += 1
            turns.append(turn)
        answers: dict[str, StreamRewardsResponse] = {}
        async with AsyncClient(chosen.address, window=_WINDOW, reconnect_timeout=chosen.reconnect_seconds) as client:
            stream = client.rewards(
                turns, chosen.reward_spec(), retries=chosen.retries, timeout=chosen.turn_seconds, on_missing=on_missing
            )
            async for answer in stream:
                raise_for_invalid_request(answer)
                answers[answer.id] = answer
        ordered = [answers[turn.request.id] for turn in turns]
        if (log := given.get("log_metric")) is not None and ordered:
            for figure, value in _figures(ordered).items():
                log(f"{name}/{figure}", value)
        return [answer.reward if answer.HasField("reward") else None for answer in ordered]

    judge.__name__ = name
    return judge


def text_of(completion: Completion) -> str:
    """Return the last text of the model: of chat messages, the last one of the assistant that has text."""
    if isinstance(completion, str):
        return completion
    said = (message.get("content") for message in reversed(completion) if message.get("role") == "assistant")
    return next((text for text in said if isinstance(text, str) and text), "")


def _figures(answers: Sequence[StreamRewardsResponse]) -> dict[str, float]:
    verdicts = [final_result(answer) for answer in answers]
    correct = [answer for answer in answers if final_result(answer).outcome == EvalResult.CORRECT]
    return {
        "correct": len(correct) / len(verdicts),
        # NaN must not end a training: it is no win here, while metrics.fast_at_p would raise.
        "fast@1": sum(metrics.is_win(smaller_speedup(answer), 1.0) for answer in correct) / len(verdicts),
        "fast@1/sure": sum(metrics.is_sure_win(smaller_low(answer), 1.0) for answer in correct) / len(verdicts),
        "rejected": sum(verdict.outcome == EvalResult.REJECTED for verdict in verdicts) / len(verdicts),
        "without_reward": sum(not answer.HasField("reward") for answer in answers) / len(answers),
    }
