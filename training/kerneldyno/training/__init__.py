"""The training library: from the rewards of a multi-turn rollout to a loss, in plain torch and without a trainer.

Import what you need: nothing is imported here, and `metrics` and `scaling` need no torch (the rest does: extra
`[training]`).

    returns     multi-turn returns
    advantages  TRLOO, GRPO, turn-independent GRPO, RLOO, ReMax, optimal baseline, REINFORCE, REINFORCE++, and their way
                to tokens
    masks       void turns, padding on either side, which turn a token belongs to
    mismatch    rejection by the mismatch of rollout and training policy (MRS), truncated importance weights, metrics
    coverage    profiling ratio (PR) and rejection by it (PRS)
    losses      dual-clip policy loss, plain policy gradient, both with rejection in one pass, and aggregations
    filters     groups that teach nothing
    oversampling  more groups than needed, the first N that differ
    adaptive    rounds of samples for each prompt until there are successes and failures
    metrics     fast@p, best by turn, pass@k
    scaling     sequential test-time scaling: which turns go into the next prompt
    errors      what is refused
"""
