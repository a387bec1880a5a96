"""The training library: from the rewards of a multi-turn rollout to a loss, in plain torch and without a trainer.

Import what you need: nothing is imported here, and `metrics` and `scaling` need no torch (the rest does: extra
`[training]`).

    returns     returns over several turns
    advantages  TRLOO, GRPO, turn-independent GRPO, RLOO, ReMax, optimal baseline, REINFORCE, REINFORCE++; spreading them
                over tokens
    masks       void turns, padding on either side, the turn that a token belongs to
    mismatch    rejection by the mismatch of rollout and training policy (MRS), truncated importance weights, metrics
    coverage    profiling ratio (PR) and rejection by it (PRS)
    losses      dual-clip policy loss, plain policy gradient, both with rejection in one pass, and aggregations
    filters     drops groups whose samples all have the same reward
    oversampling  samples more groups than needed and keeps the first N whose rewards differ
    adaptive    samples each prompt in rounds until it has both successes and failures
    metrics     fast@p, best by turn, pass@k
    scaling     sequential test-time scaling: chooses the turns that the next prompt shows
    errors      the exceptions that this package raises
"""
