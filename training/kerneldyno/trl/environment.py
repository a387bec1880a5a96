"""An environment for TRL's `environment_factory`: the model submits kernels by a tool call and gets feedback on each.

TRL runs the tool calls of one rollout after those of another, so a batch takes as long as all its evaluations together. For
throughput use the reward function; for several turns and throughput use verl's agent loop. Both interfaces are experimental
in TRL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal
from uuid import uuid4

from kerneldyno.rollout import prompts
from kerneldyno.rollout.problems import Problem
from kerneldyno.trainers import connection, settings
from kerneldyno.trainers.episode import final_result
from kerneldyno.trainers.errors import SampleFailedError, SettingsError
from kerneldyno.trainers.settings import Settings
from kerneldyno.trainers.turns import make_turn, problem_of
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: How the reward of an episode follows from those of its submissions.
Selection = Literal["best", "last", "sum"]
_SELECT: Mapping[Selection, Callable[[list[float]], float]] = {
    "best": max,
    "last": lambda rewards: rewards[-1],
    "sum": sum,
}


class KernelEnv:
    """Environment of one rollout at a time. TRL calls `reset` and `get_reward`, the model calls `submit_kernel`."""

    def __init__(self, chosen: Settings | None = None, selection: Selection = "best") -> None:
        self._settings = chosen or settings.load({})
        self._selection = selection
        self._problem: Problem | None = None
        self._rewards: list[float] = []
        self._group = ""
        self._failed = False

    def reset(self, **row: Any) -> str | None:
        """Start with the problem of a row of the data set; return a text about the tool to add to the prompt.

        Raises:
            SettingsError: the row has no usable problem.
        """
        self._problem = problem_of(row)
        self._rewards, self._failed, self._group = [], False, uuid4().hex
        return f"\n\nSubmit programs with the tool submit_kernel, at most {self._settings.turns} of them."

    # TRL shows this docstring to the model as the tool's description: changing it changes prompts.
    async def submit_kernel(self, code: str) -> str:
        """
        Compiles, checks and times a program against the reference, and tells what to mend or to improve.

        Args:
            code: The complete Python program. It defines the class that was asked for.

        Returns:
            What became of the program.
        """
        if self._problem is None:
            raise SettingsError("call reset() before submit_kernel()")
        if len(self._rewards) >= self._settings.turns:
            return "No submissions are left."
        turn = make_turn(
            self._problem, self._settings, code, group=self._group, sample=0, turn_index=len(self._rewards)
        )
        if code.strip() and "```" not in code:
            turn.ClearField("response_text")
            turn.request.kernel_code = code
        try:
            answer = await connection.score(self._settings, turn)
        except SampleFailedError:
            self._failed = True  # an exception would be shown to the model, and TRL would go on
            return "The evaluation service is not available. Stop here."
        self._rewards.append(answer.reward)
        correct = final_result(answer).outcome == EvalResult.CORRECT
        return prompts.next_message(self._problem, answer.feedback, correct=correct)["content"]

    def get_reward(self) -> float | None:
        """Return the reward of the rollout; None after an infrastructure failure: TRL then leaves it out of its group."""
        if self._failed:
            return None
        if not self._rewards:
            return self._settings.reward_spec().failure_reward
        return _SELECT[self._selection](self._rewards)


def environment_factory(
    address: str = "", reward: str | Mapping[str, Any] = "drkernel", *, selection: Selection = "best", **options: Any
) -> Callable[[], KernelEnv]:
    """Return a factory for `GRPOTrainer(environment_factory=...)`.

    Args:
        address, reward: as `make_reward_func`.
        selection: how the reward of a rollout follows from those of its submissions: "best", "last" or "sum".
        options: further settings of kerneldyno.trainers.settings, for example `turns`.

    Raises:
        SettingsError: an option cannot be used.
    """
    chosen = settings.load({**({"address": address} if address else {}), "reward": reward, **options})
    return lambda: KernelEnv(chosen, selection)
