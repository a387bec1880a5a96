"""Code that the adapters for trainers (kerneldyno.verl, kerneldyno.trl) share. It imports no trainer.

    settings    settings of a run
    turns       makes a turn from a row of a data set and a response
    connection  one reward stream for each event loop
    episode     the scored turns of one episode: token rewards and figures
    marks       how a decision about a turn reaches the estimator
    rejection   which turns to leave out: for low coverage (PRS), or because they regressed
    records     trajectories on disk
    errors      the exceptions that the adapters raise

Only rejection and marks.read need torch.
"""
