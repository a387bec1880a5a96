"""The verl plugin: rewards and estimators for stock verl 0.9.

    plugin      what verl imports, in each of its processes: registers the three below
    estimator   advantage estimators on turns: `trloo`, and others by the names of kerneldyno.training
    agent_loop  `kernel_agent`: several turns on one kernel, each turn with a reward and feedback
    reward      `compute_score` and the reward manager `kerneldyno`, for one turn
    settings    what a run may choose, and where it is written
    connection  one stream of rewards for each process
    correction  mismatch rejection (MRS) in verl's own words
    marks       how a decision about a turn travels to the estimator
    dataset     problems as rows that verl reads: `python -m kerneldyno.verl.dataset`
    doctor      did the plugin load? `kerneldyno doctor verl`

Importing this package imports nothing of it; the first three need verl.
"""
