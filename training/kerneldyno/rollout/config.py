"""Configuration of a run: everything that decides its outcome. A run can only be resumed with the same configuration.

The addresses of endpoint and scheduler and the number of concurrent episodes are not part of it. The configuration is
written into each line of the trajectory file (`extra`), so that each line is complete and files can be concatenated.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict

from kerneldyno.rewards.trajectories import TurnRecord
from kerneldyno.rollout import prompts
from kerneldyno.rollout.endpoint import Sampling
from kerneldyno.rollout.errors import OtherConfigError as OtherConfigError
from kerneldyno.rollout.marks import CONFIG, RUN
from kerneldyno.rollout.problems import Problem, digest
from kerneldyno.rpc.jsonio import declines_profile
from kerneldyno.training import scaling
from kerneldyno.training.errors import TrainingError
from kerneldyno.v1.reward_service_pb2 import RewardSpec


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """Configuration of a run.

    Attributes:
        model: name of the model at the endpoint.
        problems: problems to solve, with `samples` episodes each, of `turns` turns.
        reward: the complete reward spec.
        options: fields of EvalRequest, in JSON form, used where a problem does not set them.
        strategy, window: which earlier turns a prompt shows; see kerneldyno.training.scaling.
        rank_by: how earlier turns are ranked: "reward", "speedup" or "coverage". With "coverage", every turn is profiled.
        data_set_prompts: use the data set's own prompts where it has some.

    Raises:
        TrainingError: `strategy`, `window` or `rank_by` cannot be used.
        ProblemError: a problem or the options cannot be used.
    """

    model: str
    problems: Sequence[Problem]
    reward: RewardSpec
    samples: int = 1
    turns: int = 3
    sampling: Sampling = field(default_factory=Sampling)
    options: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "all"
    window: int = scaling.WINDOW
    data_set_prompts: bool = False
    rank_by: str = "reward"

    def __post_init__(self) -> None:
        scaling.choose([], strategy=self.strategy, window=self.window)  # raises for an unknown strategy
        scaling.check_rank_by(self.rank_by, self.strategy)
        if self.rank_by == "coverage" and declines_profile(self.options):
            text = "leave enable_profiling=false and profile_level='none' out of the request"
            raise TrainingError(f"rank_by='coverage' needs profiles; {text}")
        for problem in self.problems:
            problem.request(self.options)

    @property
    def backend(self) -> str:
        """Language of candidates where a problem does not set it."""
        return str(self.options.get("backend", "triton"))

    def data(self) -> dict[str, Any]:
        """Return the configuration as JSON, with a digest in place of the problems."""
        return {
            "model": self.model,
            "problems": len(self.problems),
            "problems_digest": digest(self.problems),
            "samples": self.samples,
            "turns": self.turns,
            "sampling": asdict(self.sampling),
            "reward": MessageToDict(self.reward, preserving_proto_field_name=True),
            "options": dict(self.options),
            "strategy": self.strategy,
            "window": None if self.strategy == "all" else self.window,
            **(
                {} if self.rank_by == "reward" else {"rank_by": self.rank_by}
            ),  # keeps files written before rank_by existed resumable
            "prompts": f"{'data set' if self.data_set_prompts else 'own'}/{prompts.VERSION}",
        }

    def seed(self, problem: Problem, sample: int, turn: int) -> int | None:
        """Return the seed of one generation, always the same for the same turn; None if the run has no seed."""
        if self.sampling.seed is None:
            return None
        text = json.dumps([self.sampling.seed, problem.id, sample, turn])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def run_name(config: RolloutConfig, recorded: Iterable[TurnRecord]) -> str:
    """Return the name of the run that the turns of a file belong to, or a new name if there are no turns.

    Args:
        config: configuration of this run.
        recorded: turns of the file.

    Raises:
        OtherConfigError: they belong to a run with another configuration, to several runs, or to no rollout.
    """
    mine = json.loads(json.dumps(config.data()))
    names = set()
    for turn in recorded:
        theirs, name = turn.extra.get(CONFIG), turn.extra.get(RUN)
        if not isinstance(theirs, Mapping) or not isinstance(name, str):
            raise OtherConfigError("it has turns that no rollout wrote")
        if theirs != mine:
            raise OtherConfigError("it was started with " + _difference(theirs, mine))
        names.add(name)
    if len(names) > 1:
        raise OtherConfigError("it has turns of several runs")
    return names.pop() if names else uuid.uuid4().hex


def _difference(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    names = [name for name in {**mine, **theirs} if theirs.get(name) != mine.get(name)]
    return ", ".join(f"{name} {_short(theirs.get(name))} (now {_short(mine.get(name))})" for name in names)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
