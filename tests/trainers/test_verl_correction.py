"""Tests of the MRS preset in verl's own rollout correction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.utils.config import omega_conf_to_dataclass

from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import losses, mismatch
from kerneldyno.verl.correction import mrs, policy_loss, refuse_idle_bypass
from tests.trainers import verl_harness as harness

RECIPE = Path(__file__).parents[2] / "examples" / "verl"


def test_rows_out_of_bounds_and_rows_with_an_impossible_token_are_rejected_whole() -> None:
    rows, tokens = 7, 20_000
    log_ratio = torch.zeros(rows, tokens)
    log_ratio[1] += 0.00099  # within [0.999, 1.001]
    log_ratio[2] += 0.00102
    log_ratio[3] -= 0.00102
    log_ratio[4, 5] = -9.3  # a ratio below 1e-4, with the mean within the bounds
    log_ratio[5, 5] = -9.1  # a ratio above 1e-4
    log_ratio[6, 5] = 9.3  # a ratio above 1e4: KernelGYM keeps it, but verl's measure has two sides
    kept = _rejected(log_ratio, torch.ones(rows, tokens, dtype=torch.int64)).any(dim=1)
    assert kept.tolist() == [True, True, False, False, False, True, False]


def test_it_agrees_with_our_own_on_random_rows() -> None:
    generator = torch.Generator().manual_seed(11)
    shift = torch.linspace(-0.002, 0.002, 64)[:, None]
    log_ratio = torch.randn(64, 500, generator=generator) * 0.001 + shift
    log_ratio[::7, 3] = -9.5
    mask = (torch.rand(64, 500, generator=generator) < 0.8).long()
    verls = _rejected(log_ratio, mask)
    ours = mismatch.reject(log_ratio - 1, torch.full_like(log_ratio, -1.0), mask, mismatch.PAPER)
    assert torch.equal(verls.bool(), ours.mask)
    assert 0 < verls.any(dim=1).sum() < 64


def test_verl_accepts_it_as_a_configuration_and_the_recipe_has_the_same() -> None:
    assert RolloutCorrectionConfig(**mrs()).rollout_rs == "seq_mean_k1,seq_max_k2"
    written = OmegaConf.load(RECIPE / "mrs.yaml").algorithm.rollout_correction
    assert OmegaConf.to_container(written) == mrs()


def test_without_a_veto_and_with_other_bounds() -> None:
    assert mrs((0.5, 2), None) == mrs() | {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.5_2"}
    for wrong in ((1.001, 0.999), (0.0, 1.0), (0.9, float("inf"))):
        with pytest.raises(SettingsError):
            mrs(wrong)
    with pytest.raises(SettingsError):
        mrs(veto=1.5)


def test_other_modes_are_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="mode='skip' is unknown; choose one of decoupled, bypass, pure"):
        mrs(mode="skip")
    with pytest.raises(SettingsError, match="bypass_mode=False"):
        policy_loss(mrs())


#: Arguments that give the rejection to the actor.
TO_THE_ACTOR = (
    "actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode",
    "+actor_rollout_ref.actor.policy_loss.rollout_correction=${algorithm.rollout_correction}",
)


def _composed(mode: str, *more: str) -> Any:
    asked = [f"++algorithm.rollout_correction.{key}={_text(value)}" for key, value in mrs(mode=mode).items()]
    return harness.composed(*asked, *more)


def _text(value: Any) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def test_a_run_in_which_nothing_would_be_rejected_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"nothing would be rejected; set .*loss_mode=bypass_mode"):
        refuse_idle_bypass(_composed("bypass"))
    with pytest.raises(SettingsError, match="nothing would be rejected"):
        refuse_idle_bypass(_composed("bypass", TO_THE_ACTOR[0]))
    refuse_idle_bypass(_composed("bypass", *TO_THE_ACTOR))
    refuse_idle_bypass(_composed("bypass", "trainer.use_v1=False"))  # the old trainer tells the actor itself
    refuse_idle_bypass(_composed("decoupled"))
    refuse_idle_bypass({})


@pytest.mark.parametrize("mode", ["bypass", "pure"])
def test_bypass_and_pure_are_verls_loss_in_bypass_mode(mode: str) -> None:
    """Value and gradient are equal under a configuration composed from a command line. verl's bounds are on -log r."""
    composed = _composed(mode, *TO_THE_ACTOR, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4")
    actor = omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    assert actor.policy_loss.loss_mode == "bypass_mode"
    written = {key: actor.policy_loss.rollout_correction[key] for key in mrs(mode=mode)}
    assert written == mrs(mode=mode) == policy_loss(mrs(mode=mode))["rollout_correction"]
    generator = torch.Generator().manual_seed(5)
    rows, tokens = 32, 40
    rollout = -torch.rand(rows, tokens, generator=generator)
    moved = rollout + torch.linspace(-0.002, 0.002, rows)[:, None]
    moved[4, 3] -= 9.5
    mask = (torch.rand(rows, tokens, generator=generator) < 0.8).long()
    advantages = torch.randn(rows, 1, generator=generator).expand(rows, tokens)
    found = []
    for ours in (False, True):
        log_probs = moved.clone().requires_grad_()
        if ours:
            rule = mismatch.Rule(upper=1 / 0.999, lower=1 / 1.001, veto_level="sequence")
            options = {"clip_low": actor.clip_ratio_low, "clip_high": actor.clip_ratio_high} if mode == "bypass" else {}
            call = losses.bypass if mode == "bypass" else losses.pure
            loss, _ = call(log_probs, rollout, advantages, mask, rule=rule, aggregation="token-mean", **options)
        else:
            loss, _ = core_algos.get_policy_loss_fn("bypass_mode")(
                old_log_prob=rollout, log_prob=log_probs, advantages=advantages, response_mask=mask,
                loss_agg_mode="token-mean", config=actor,
            )  # fmt: skip
        loss.backward()
        assert log_probs.grad is not None
        found.append((loss.detach(), log_probs.grad))
    (theirs, their_gradient), (mine, my_gradient) = found
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(my_gradient, their_gradient)
    kept = my_gradient.ne(0).any(dim=1)
    assert 0 < kept.sum() < rows


def _rejected(log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rollout = torch.full_like(log_ratio, -1.0)
    tensors = {"old_log_probs": rollout + log_ratio, "rollout_log_probs": rollout, "response_mask": mask}
    uids = np.array([str(i) for i in range(len(mask))], dtype=object)
    data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uids})
    data, _ = compute_rollout_correction_and_add_to_batch(data, OmegaConf.create(mrs()))
    return data.batch["response_mask"]
