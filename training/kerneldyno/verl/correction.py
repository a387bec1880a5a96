"""Mismatch rejection sampling (MRS) in verl's own words: a block for `algorithm.rollout_correction`.

Dr. Kernel keeps an episode if the geometric mean of its ratios pi_train / pi_rollout is within [0.999, 1.001], and
rejects it if any token's ratio is under 1e-4. verl has both: `seq_mean_k1` bounds the mean of -log ratio over the row,
which is the episode, and `seq_max_k2` bounds the largest 0.5 * (log ratio)^2; 42.415 is that of 1e-4. The one
difference: seq_max_k2 also rejects ratios above 1e4, which KernelGYM lets pass.

verl rejects only if it has the rollout's log-probabilities, and says nothing without them: set
`actor_rollout_ref.rollout.calculate_log_probs=True`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from kerneldyno.trainers.errors import SettingsError

#: The released runs' constants.
BOUNDS: Final = (0.999, 1.001)
VETO: Final = 1e-4


def mrs(bounds: tuple[float, float] = BOUNDS, veto: float | None = VETO) -> dict[str, Any]:
    """Returns the keys of `algorithm.rollout_correction` for MRS.

    Args:
        bounds: lowest and highest geometric mean of the ratio over an episode's tokens that is kept.
        veto: an episode with a token whose ratio is below this, or above its inverse, is rejected; None for no veto.
    """
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
        "bypass_mode": False,
    }


def refuse_split_turns(rollout_correction: Mapping[str, Any] | None) -> None:
    """Raises SettingsError if verl would reject single tokens before the estimator looks for turns.

    Turns are runs of the response mask. A token taken out of a run makes two turns of one, and gives one of them no reward.
    (In bypass mode verl rejects later, in the actor.)
    """
    if rollout_correction is None or rollout_correction.get("bypass_mode"):
        return
    modes = [mode.strip() for mode in str(rollout_correction.get("rollout_rs") or "").split(",")]
    if split := [mode for mode in modes if mode.startswith("token_")]:
        preset = mrs()
        raise SettingsError(
            f"algorithm.rollout_correction.rollout_rs has {', '.join(split)}, which takes single tokens out of the response "
            "mask before turns are found as its runs: one turn would become two. Reject whole sequences instead, such as "
            f"rollout_rs={preset['rollout_rs']!r} with rollout_rs_threshold={preset['rollout_rs_threshold']!r}"
        )
