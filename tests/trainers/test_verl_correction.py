"""The MRS preset through verl's own rollout correction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from kerneldyno.trainers.errors import SettingsError
from kerneldyno.training import mismatch
from kerneldyno.verl.correction import mrs
from omegaconf import OmegaConf
from verl.protocol import DataProto
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

RECIPE = Path(__file__).parents[2] / "examples" / "verl"


def test_rows_out_of_bounds_and_rows_with_an_impossible_token_are_rejected_whole() -> None:
    rows, tokens = 7, 20_000
    log_ratio = torch.zeros(rows, tokens)
    log_ratio[1] += 0.00099  # within [0.999, 1.001]
    log_ratio[2] += 0.00102
    log_ratio[3] -= 0.00102
    log_ratio[4, 5] = -9.3  # a ratio under 1e-4, and a mean within the bounds
    log_ratio[5, 5] = -9.1  # over 1e-4
    log_ratio[6, 5] = 9.3  # over 1e4: KernelGYM lets it pass, verl's measure has two sides
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


def _rejected(log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rollout = torch.full_like(log_ratio, -1.0)
    tensors = {"old_log_probs": rollout + log_ratio, "rollout_log_probs": rollout, "response_mask": mask}
    uids = np.array([str(i) for i in range(len(mask))], dtype=object)
    data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uids})
    data, _ = compute_rollout_correction_and_add_to_batch(data, OmegaConf.create(mrs()))
    return data.batch["response_mask"]
