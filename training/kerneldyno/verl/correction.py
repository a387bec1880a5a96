"""Mismatch rejection sampling (MRS) as options of verl: a block for `algorithm.rollout_correction`.

Dr. Kernel keeps an episode if the geometric mean of its ratios pi_train / pi_rollout is within [0.999, 1.001], and rejects
it if any token's ratio is below 1e-4. verl can do both: `seq_mean_k1` bounds the mean of -log ratio over the row, which is
the episode, and `seq_max_k2` bounds the largest 0.5 * (log ratio)^2, which is 42.415 for 1e-4. There is one difference:
seq_max_k2 also rejects ratios above 1e4, which KernelGYM accepts.

verl rejects only if it has the rollout's log-probabilities, and gives no warning without them: set
`actor_rollout_ref.rollout.calculate_log_probs=True`.

Modes "bypass" and "pure" (kerneldyno.training.losses) save the pass that recomputes the old policy's log-probabilities: the
actor then rejects in its own pass. verl's default trainer (V1) of 0.9.1 drops the pass but does not tell the actor to
reject. It needs `policy_loss` as well; without it nothing would be rejected. `refuse_idle_bypass` raises for such a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from kerneldyno.trainers.errors import SettingsError

#: Constants of Dr. Kernel's released runs.
BOUNDS: Final = (0.999, 1.001)
VETO: Final = 1e-4


#: verl's `loss_type` in bypass mode, by our name of the mode.
_LOSS_TYPES: Final = {"bypass": "ppo_clip", "pure": "reinforce"}
MODES: Final = ("decoupled", *_LOSS_TYPES)


def mrs(bounds: tuple[float, float] = BOUNDS, veto: float | None = VETO, *, mode: str = "decoupled") -> dict[str, Any]:
    """Return the keys of `algorithm.rollout_correction` for MRS.

    Args:
        bounds: keep episodes whose geometric mean of the ratio over all tokens is within these bounds.
        veto: reject an episode with a token whose ratio is below this or above its inverse; None for no veto.
        mode: "decoupled" recomputes the old policy's log-probabilities (as Dr. Kernel's runs); "bypass" uses the rollout's
            instead and clips around them; "pure" has neither ratio nor clips. The last two need `policy_loss` too.

    Raises:
        SettingsError: bounds, veto or mode cannot be used.
    """
    if mode not in MODES:
        raise SettingsError(f"mode={mode!r} is unknown; choose one of {', '.join(MODES)}")
    low, high = bounds
    if not 0 < low < high < math.inf:
        raise SettingsError(f"bounds={bounds}: expected 0 < low < high")
    if veto is not None and not 0 < veto < 1:
        raise SettingsError(f"veto={veto}: expected 0 < veto < 1, or None")
    modes, limits = ["seq_mean_k1"], [f"{low:g}_{high:g}"]
    if veto is not None:
        modes.append("seq_max_k2")
        limits.append(f"{0.5 * math.log(veto) ** 2:.3f}")
    return {
        "rollout_is": None,
        "rollout_rs": ",".join(modes),
        "rollout_rs_threshold": ",".join(limits),
        "bypass_mode": mode != "decoupled",
        **({} if mode == "decoupled" else {"loss_type": _LOSS_TYPES[mode]}),
    }


def policy_loss(rollout_correction: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `actor_rollout_ref.actor.policy_loss` that make the actor reject in bypass mode.

    Args:
        rollout_correction: result of `mrs` in mode "bypass" or "pure".

    Raises:
        SettingsError: the block is not in bypass mode, so the actor would reject nothing.
    """
    if not rollout_correction.get("bypass_mode"):
        raise SettingsError('the block has bypass_mode=False; make it by mrs(mode="bypass") or mrs(mode="pure")')
    return {"loss_mode": "bypass_mode", "rollout_correction": dict(rollout_correction)}


def refuse_idle_bypass(config: Mapping[str, Any]) -> None:
    """Check that verl's default trainer does not skip the recomputation and reject nothing.

    Args:
        config: verl's whole configuration.

    Raises:
        SettingsError: it would.
    """
    chosen = _part(config, "algorithm", "rollout_correction")
    if not (chosen.get("bypass_mode") and chosen.get("rollout_rs")) or not _part(config, "trainer").get("use_v1", True):
        return
    actor = _part(config, "actor_rollout_ref", "actor", "policy_loss")
    inner = actor.get("rollout_correction") or {}
    if actor.get("loss_mode") == "bypass_mode" and inner.get("rollout_rs"):
        return
    raise SettingsError(
        "algorithm.rollout_correction.bypass_mode=True: verl's default trainer does not tell the actor to reject, and "
        "nothing would be rejected; set actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode and "
        "+actor_rollout_ref.actor.policy_loss.rollout_correction='${algorithm.rollout_correction}' too"
    )


def _part(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a block of the configuration; an empty one if it does not exist."""
    for name in names:
        config = config.get(name) or {}
    return config


def refuse_split_turns(rollout_correction: Mapping[str, Any] | None) -> None:
    """Check that verl does not reject single tokens before the estimator finds the turns.

    Turns are runs of ones in the response mask. Removing a token from a run splits one turn into two, and one of them has
    no reward. (In bypass mode verl rejects later, in the actor.)

    Args:
        rollout_correction: the block `algorithm.rollout_correction`, if there is one.

    Raises:
        SettingsError: verl would reject single tokens.
    """
    if rollout_correction is None or rollout_correction.get("bypass_mode"):
        return
    modes = [mode.strip() for mode in str(rollout_correction.get("rollout_rs") or "").split(",")]
    if split := [mode for mode in modes if mode.startswith("token_")]:
        preset = mrs()
        raise SettingsError(
            f"algorithm.rollout_correction.rollout_rs has {', '.join(split)}, which removes single tokens from the response "
            "mask before the estimator finds turns as runs of ones: one turn would become two. Reject whole sequences with "
            f"rollout_rs={preset['rollout_rs']!r} with rollout_rs_threshold={preset['rollout_rs_threshold']!r}"
        )
