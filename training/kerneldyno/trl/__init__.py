"""Rewards for TRL's trainers, as a reward function or as an environment.

    from kerneldyno.trl import make_reward_func
    trainer = GRPOTrainer(..., reward_funcs=make_reward_func("scheduler:50051"), train_dataset=...)

Rows are those of `kerneldyno.verl.dataset`, or have a column `reference_code`. Importing this package needs neither TRL nor
torch.
"""

from __future__ import annotations

from kerneldyno.trl.environment import KernelEnv, environment_factory
from kerneldyno.trl.rewards import make_reward_func

__all__ = ["KernelEnv", "environment_factory", "make_reward_func"]
