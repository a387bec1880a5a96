"""Make the turn that the scheduler scores, from a row of verl's data set and a response to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from kerneldyno.client import StreamRewardsResponse, Turn
from kerneldyno.rewards.scoring import callers_fault
from kerneldyno.rollout import problems
from kerneldyno.rollout.problems import Problem, ProblemError
from kerneldyno.rpc import validation
from kerneldyno.rpc.profiles import require_profile
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.trainers.settings import Settings

#: Number of tokens at the end of a prompt that can contain the tag that opens the reasoning.
PROMPT_END_TOKENS = 16


def problem_of(row: Mapping[str, Any]) -> Problem:
    """Return the problem of a row: the reference from `reward_model.ground_truth`, the rest from `extra_info`.

    Raises:
        SettingsError: the row has no problem; `python -m kerneldyno.verl.dataset` writes rows that have one.
    """
    index = (row.get("extra_info") or {}).get("index", "?")
    try:
        return problems.from_row(row, f"row {index} of {row.get('data_source', 'the data set')}")
    except ProblemError as error:
        raise SettingsError(str(error)) from error


def make_turn(problem: Problem, settings: Settings, response: str, *, group: str, sample: int, turn_index: int) -> Turn:
    """Return the turn in which a model answered `problem` with `response`.

    Every turn gets a new id: the scheduler merges and caches equal work by its content, not by its id.

    Args:
        problem: the problem.
        settings: settings of the run.
        response: text of the model.
        group: id of the prompt; samples of one prompt have the same.
        sample: number of the sample within the group.
        turn_index: number of the turn, from 0.

    Raises:
        SettingsError: the problem's options or `kerneldyno.request` cannot be used.
    """
    try:
        request = problem.request(settings.request)
    except ProblemError as error:
        raise SettingsError(f"{error} (from the data set or kerneldyno.request)") from error
    request.id = f"{group[:80]}/{sample}/{turn_index}/{uuid4().hex}"
    seconds = min(max(settings.turn_seconds, validation.MIN_TOTAL_SECONDS), validation.MAX_TOTAL_SECONDS)
    request.total_timeout.FromMilliseconds(round(seconds * 1000))
    if settings.prs is not None or settings.rank_by == "coverage":
        require_profile(request)
    return Turn(
        group=group[:100],
        sample=sample,
        turn_index=turn_index,
        request=request,
        response_text=response or "\n",  # an empty text would mean a turn that has code instead
    )


def raise_for_invalid_request(answer: StreamRewardsResponse) -> None:
    """Raise SettingsError if the request cannot be evaluated whatever the model writes: an unknown backend, for example.

    Such an answer has no reward, like one after an outage, but retrying does not help.
    """
    if answer.HasField("reward") or not callers_fault(answer.result):
        return
    why = [f"{one.field}: {one.description}" for one in answer.result.invalid.violations]
    raise SettingsError(f"the request cannot be evaluated: {'; '.join(why) or answer.result.message}")
