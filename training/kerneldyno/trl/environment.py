"""An environment for TRL's `environment_factory`: the model submits kernels by a tool call, and is told what became of them.

TRL runs the tool calls of one rollout after those of another, so a batch takes as long as all its evaluations together. For
throughput take the reward function; for several turns and throughput, verl's agent loop. Both surfaces are experimental in
TRL.
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

#: Which of an episode's rewards is its reward.
Selection = Literal["best", "last", "sum"]
_SELECT: Mapping[Selection, Callable[[list[float]], float]] = {
    "best": max,
    "last": lambda rewards: rewards[-1],
    "sum": sum,
}


class KernelEnv:
    """One rollout at a time: `reset` by TRL, `submit_kernel` by the model, `get_reward` by TRL."""

    def __init__(self, chosen: Settings | None = None, selection: Selection = "best") -> None:
        self._settings = chosen or settings.load({})
        self._selection = selection
        self._problem: Problem | None = None
        self._rewards: list[float] = []
        self._group = ""
        self._failed = False

    def reset(self, **row: Any) -> str | None:
        """Takes up the problem of a row of the data set; says what the tool is for."""
        self._problem = problem_of(row)
        self._rewards, self._failed, self._group = [], False, uuid4().hex
        return f"\n\nSubmit programs with the tool submit_kernel, at most {self._settings.turns} of them."

    async def submit_kernel(self, code: str) -> str:
        """
        Compiles, checks and times a program against the reference, and tells what to mend or to improve.

        Args:
            code: The complete Python program. It defines the class that was asked for.

        Returns:
            What became of the program.
        """
        if self._problem is None:
            raise SettingsError("reset() comes before submit_kernel()")
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
            self._failed = True  # TRL would show the model an exception and go on
            return "The evaluation service is not available. Stop here."
        self._rewards.append(answer.reward)
        correct = final_result(answer).outcome == EvalResult.CORRECT
        return prompts.next_message(self._problem, answer.feedback, correct=correct)["content"]

    def get_reward(self) -> float | None:
        """The reward of the rollout; None where infrastructure failed: TRL leaves it out of its group."""
        if self._failed:
            return None
        if not self._rewards:
            return self._settings.reward_spec().failure_reward
        return _SELECT[self._selection](self._rewards)


def environment_factory(
    address: str = "", reward: str | Mapping[str, Any] = "drkernel", *, selection: Selection = "best", **options: Any
) -> Callable[[], KernelEnv]:
    """Makes what `GRPOTrainer(environment_factory=...)` takes.

    Args:
        address, reward: as `make_reward_func`.
        selection: which of the rewards of a rollout's submissions is the rollout's.
        options: further settings of kerneldyno.trainers.settings, for example `turns`.

    Raises:
        SettingsError: an option cannot be used.
    """
    chosen = settings.load({**({"address": address} if address else {}), "reward": reward, **options})
    return lambda: KernelEnv(chosen, selection)
