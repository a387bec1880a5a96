"""Tests of the recipes in examples/verl: verl's own configuration and our settings accept their arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from kerneldyno.trainers import settings
from kerneldyno.training.coverage import CoverageRule
from kerneldyno.verl import correction
from kerneldyno.verl.agent_loop import check
from tests.trainers import small_models
from tests.trainers import verl_harness as harness

RECIPES = Path(__file__).parents[2] / "examples" / "verl"


def composed(script: str, model: Path, *more: str) -> Any:
    """Return verl's configuration with the arguments that a recipe's script gives it."""
    given = {
        "SCHEDULER": "scheduler:50051",
        "MODEL": str(model),
        "TRAIN": "t.parquet",
        "VAL": "v.parquet",
        "PRINT": "1",
    }
    command = [str(RECIPES / script), "trainer.experiment_name=test", *more]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | given)
    assert ran.returncode == 0, ran.stderr
    return harness.composed(*ran.stdout.splitlines())


@pytest.mark.parametrize("script", ["drkernel.sh", "smoke.sh"])
def test_verl_and_the_plugin_take_the_recipe(script: str, tmp_path: Path) -> None:
    config = composed(script, small_models.save(tmp_path))
    OmegaConf.to_container(config, resolve=True)
    assert not need_critic(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    chosen = settings.load(config.kerneldyno)
    check(chosen, config.algorithm)
    assert chosen.address == "scheduler:50051"
    assert chosen.coverage_rule() == CoverageRule(threshold=0.3, softness=0.1, decimals=2)
    assert rollout.prompt_length + rollout.response_length <= rollout.max_model_len
    assert chosen.turns * chosen.turn_tokens < rollout.response_length
    assert rollout.calculate_log_probs, "without them nothing is rejected"
    assert OmegaConf.to_container(config.algorithm.rollout_correction).items() >= correction.mrs().items()
    assert config.trainer.experiment_name == "test"


def test_rejection_by_coverage_can_be_taken_out_for_an_evaluator_without_profiles(tmp_path: Path) -> None:
    config = composed("smoke.sh", small_models.save(tmp_path), "kerneldyno.prs=null")
    assert settings.load(config.kerneldyno).coverage_rule() is None


def test_the_recipe_has_the_seeds_hyperparameters(tmp_path: Path) -> None:
    config = composed("drkernel.sh", small_models.save(tmp_path))
    actor = config.actor_rollout_ref.actor
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c, actor.grad_clip) == (0.2, 0.28, 3.0, 1.0)
    assert (actor.optim.lr, actor.optim.weight_decay, actor.ppo_epochs, actor.entropy_coeff) == (1e-6, 0.01, 1, 0)
    assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n, actor.ppo_mini_batch_size) == (16, 16, 16)
    assert actor.loss_scale_factor == 1000 * config.kerneldyno.turns


def test_without_what_it_needs_a_script_says_so() -> None:
    ran = subprocess.run(
        [str(RECIPES / "drkernel.sh")], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert ran.returncode != 0
    assert "SCHEDULER" in ran.stderr
