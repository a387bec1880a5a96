"""The verl plugin: rewards and estimators for stock verl 0.9.

    plugin      what verl imports, in each of its processes: registers the next three
    estimator   advantage estimators on turns: `trloo`, and others by the names of kerneldyno.training
    agent_loop  `kernel_agent`: several turns on one kernel, each turn with a reward and feedback
    manager     the reward manager `kerneldyno`, for one turn
    score       `compute_score`, the same as a custom reward function
    correction  mismatch rejection (MRS) in verl's own words
    dataset     problems as rows that verl reads: `python -m kerneldyno.verl.dataset`
    probe       did the plugin load? `kerneldyno doctor verl` runs it in a process of its own

What does not need verl is in kerneldyno.trainers. Importing this package imports nothing; plugin, estimator, agent_loop and
manager need verl.
"""
