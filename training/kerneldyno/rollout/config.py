"""What decides the outcome of a run, and so what a run may be resumed with: the same, or not at all.

Where things are is not part of it: the endpoint's address, the scheduler's, how many episodes run at once. It goes into
each line of the file of trajectories (`extra`), so that lines stand alone and files can be joined.
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
from kerneldyno.rollout.marks import CONFIG, RUN
from kerneldyno.rollout.problems import Problem, digest
from kerneldyno.training import scaling
from kerneldyno.training.errors import TrainingError
from kerneldyno.v1.reward_service_pb2 import RewardSpec


class OtherConfigError(Exception):
    """The file belongs to a run with another configuration."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """A run.

    Attributes:
        problems: what is to be solved; `samples` episodes each, of `turns` turns.
        reward: a whole spec.
        options: fields of EvalRequest, in JSON form, for what problems leave open.
        strategy, window: which earlier turns a prompt shows; see kerneldyno.training.scaling.
        rank_by: what makes an earlier turn worth showing: "reward", "speedup" or "coverage". By coverage, every turn is
            profiled.
        data_set_prompts: whether a data set's own prompts are used where it has some.
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
        scaling.choose([], strategy=self.strategy, window=self.window)  # raises for what it does not know
        scaling.check_rank_by(self.rank_by, self.strategy)
        if self.rank_by == "coverage" and self.options.get("enable_profiling") is False:
            raise TrainingError("rank_by='coverage' needs profiles; leave enable_profiling=false out of the request")
        for problem in self.problems:
            problem.request(self.options)

    @property
    def backend(self) -> str:
        """What candidates are written in, where a problem does not say."""
        return str(self.options.get("backend", "triton"))

    def data(self) -> dict[str, Any]:
        """The configuration as JSON, problems by digest."""
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
            **({} if self.rank_by == "reward" else {"rank_by": self.rank_by}),  # files from before it go on
            "prompts": f"{'data set' if self.data_set_prompts else 'own'}/{prompts.VERSION}",
        }

    def seed(self, problem: Problem, sample: int, turn: int) -> int | None:
        """The seed of one generation, when the run has one: the same again for the same turn."""
        if self.sampling.seed is None:
            return None
        text = json.dumps([self.sampling.seed, problem.id, sample, turn])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def run_name(config: RolloutConfig, recorded: Iterable[TurnRecord]) -> str:
    """Return the name of the run that a file's turns are of, or a new one if there are none.

    Raises:
        OtherConfigError: they are of a run with another configuration, of several runs, or of no rollout.
    """
    mine = json.loads(json.dumps(config.data()))
    names = set()
    for turn in recorded:
        theirs, name = turn.extra.get(CONFIG), turn.extra.get(RUN)
        if not isinstance(theirs, Mapping) or not isinstance(name, str):
            raise OtherConfigError("it has turns that no rollout has written")
        if theirs != mine:
            raise OtherConfigError("it was begun with " + _difference(theirs, mine))
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
