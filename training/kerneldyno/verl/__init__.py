"""The verl plugin: rewards and estimators for stock verl 0.9.

    plugin      imported by each process of verl: registers the next three
    estimator   advantage estimators on turns: `trloo`, and others by the names of kerneldyno.training
    agent_loop  `kernel_agent`: several turns on one kernel, each turn with a reward and feedback
    manager     the reward manager `kerneldyno`, for one turn
    score       `compute_score`, the same as a custom reward function
    correction  verl's options for mismatch rejection (MRS)
    dataset     writes problems as rows that verl reads: `python -m kerneldyno.verl.dataset`
    probe       checks whether the plugin loads; `kerneldyno doctor verl` runs it in a process of its own

Code that does not need verl is in kerneldyno.trainers. Importing this package imports nothing else; plugin, estimator,
agent_loop and manager need verl.
"""
