"""Imitation: one imitation step, and warming up a policy from a file of recorded trajectories.

The procedure is that for language models: train.py --record records judged turns. Those that were CORRECT and good
enough become examples of prompt and answer (kerneldyno.rewards.cold_start), and the policy learns to give these answers
(train.py --warm-from). Nothing else of the record is used, so a file of another policy works, too.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path

import grammar
import torch
from policy import Policy, encode, read_prompt, written
from torch import Tensor

from kerneldyno.rewards.cold_start import turn_examples
from kerneldyno.rewards.trajectories import scan

STEPS, BATCH, LEARNING_RATE = 100, 48, 5e-4
_PLAN = re.compile(r"This plan: ([a-z_ ]+)\.")


class WarmingError(ValueError):
    """The file cannot be used to warm up this policy."""


def imitate(policy: Policy, optimizer: torch.optim.Optimizer, prompts: Tensor, responses: Tensor) -> float:
    """Make one step towards these responses; return the loss: the mean over responses of -log-probability."""
    log_probs, _ = policy.log_probs(prompts, responses)
    loss = -(log_probs * written(responses)).sum() / len(responses)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def read_examples(path: Path, *, min_reward: float, min_speedup: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return prompts (R, PROMPT) and responses (R, LONGEST) of the turns that are worth imitating.

    Args:
        path: a file of trajectories that `train.py --record` wrote.
        min_reward, min_speedup: see `kerneldyno.rewards.cold_start.turn_examples`.

    Raises:
        WarmingError: no turn is good enough, or one was not written by such a policy.
        TrajectoryFileError, OSError: the file is not a trajectory file, or cannot be read.
    """
    prompts, responses = [], []
    for row in turn_examples(scan(path), min_reward=min_reward, min_speedup=min_speedup):
        place = f"{path}: turn {row['turn_index'] + 1} of {row['group']}/{row['sample']}"
        found = _PLAN.match(row["completion"][0]["content"])
        plan = grammar.parse((*found[1].split(), grammar.END)) if found else None
        if plan is None:
            raise WarmingError(f"{place} names no plan of the grammar; give a file that train.py --record wrote")
        try:
            prompts.append(read_prompt(row["prompt"][0]["content"]))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise WarmingError(f"{place} has no prompt of this policy: {error}") from error
        responses.append(encode(plan.words))
    if not prompts:
        raise WarmingError(
            f"{path}: no turn was CORRECT with a reward of at least {min_reward:g} and a speedup of at least "
            f"{min_speedup:g}; lower the threshold, or record more"
        )
    return torch.tensor(prompts), torch.tensor(responses)


def warm(policy: Policy, prompts: Tensor, responses: Tensor, *, seed: int, steps: int = STEPS) -> Policy:
    """Return a copy of `policy` that has learnt to give these responses to these prompts.

    Args:
        policy: the policy, which is not changed.
        prompts, responses: as `read_examples` returns them.
        seed: draws the batches.
        steps: number of the optimizer's steps.
    """
    policy = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(len(prompts), (BATCH,), generator=generator)
        imitate(policy, optimizer, prompts[batch], responses[batch])
    return policy
