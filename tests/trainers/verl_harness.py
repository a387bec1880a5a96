"""Shared parts of the tests of the verl plugin: verl's own configuration, a scripted rollout engine, responses."""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import verl
from hydra import compose, initialize_config_dir
from verl.workers.rollout.replica import TokenOutput

from tests.trainers import small_models

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(4, 4)]


def get_init_inputs():
    return []
"""


def config(model: Path, *overrides: str) -> Any:
    """Return verl's configuration for these tests, composed as its command line composes it."""
    return copy.deepcopy(_composed(model, overrides))


@lru_cache
def _composed(model: Path, overrides: tuple[str, ...]) -> Any:
    given = [
        f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.prompt_length=6000",
        "actor_rollout_ref.rollout.response_length=6000",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.rollout.agent.default_agent_loop=kernel_agent",
        "algorithm.adv_estimator=trloo",
        "+kerneldyno.min_turn_tokens=64",
        "+kerneldyno.reconnect_seconds=1",
    ]
    return composed(*given, *overrides)


def composed(*overrides: str) -> Any:
    """Return verl's configuration with only these arguments."""
    folder = os.path.join(os.path.dirname(verl.__file__), "trainer", "config")
    with initialize_config_dir(folder, version_base=None):
        return compose("ppo_trainer", overrides=list(overrides))


def row(**changes: Any) -> dict[str, Any]:
    """Return a row as verl gives it to an agent loop."""
    prompt = [{"role": "user", "content": "Write ModelNew."}]
    fields = {
        "raw_prompt": prompt,
        "data_source": "test",
        "reward_model": {"style": "rule", "ground_truth": REFERENCE},
        "extra_info": {"index": 0, "problem_id": "relu"},
        "uid": "u",
        "session_id": 0,
        "global_steps": 1,
    }
    return fields | changes


def answer(script: str = "") -> str:
    """Return a response whose candidate tells the scripted node its result, for example answer("speedup=2")."""
    return f"Here it is.\n```python\n# {script}\nclass ModelNew:\n    pass\n```"


class Engine:
    """A rollout engine that gives each episode the responses of `script` in turn, and records its calls."""

    def __init__(self, script: list[str], *, logprobs: bool = True, **extra_fields: Any) -> None:
        self.script = script
        self.logprobs = logprobs
        self.extra_fields = extra_fields
        self.prompts: list[list[int]] = []
        self.params: list[dict[str, Any]] = []
        self._turn: dict[str, int] = defaultdict(int)
        self._tokenizer = small_models.tokenizer()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.prompts.append(list(prompt_ids))
        self.params.append(sampling_params)
        turn = self._turn[request_id]
        self._turn[request_id] += 1
        ids = [*self._tokenizer.encode(self.script[turn % len(self.script)]), self._tokenizer.eos_token_id]
        ids = ids[: sampling_params.get("max_tokens")]
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.5 - turn] * len(ids) if self.logprobs else None,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1 + turn, **self.extra_fields},
        )


class Episodes(Engine):
    """An engine that gives each episode its own script, in the order in which episodes begin."""

    def __init__(self, scripts: list[list[str]]) -> None:
        super().__init__([])
        self.scripts = scripts
        self._of: dict[str, list[str]] = {}

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        self.script = self._of.setdefault(request_id, self.scripts[len(self._of) % len(self.scripts)])
        return await super().generate(request_id, **asked)


def runs_of_ones(mask: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the turns of a response mask, each as (begin, end)."""
    begin = None
    for index, one in enumerate([*mask, 0]):
        if one and begin is None:
            begin = index
        if not one and begin is not None:
            yield begin, index
            begin = None


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables for a block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
