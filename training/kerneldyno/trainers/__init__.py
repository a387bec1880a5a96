"""What the adapters for trainers (kerneldyno.verl, kerneldyno.trl) share, beside the trainer itself.

    settings    what a run may choose
    turns       from a row of a data set and a response to a turn
    connection  one stream of rewards for each event loop
    episode     what became of the turns of one episode
    marks       how a decision about a turn travels to an estimator
    rejection   which turns are left out: for their coverage (PRS), or because they regressed
    records     trajectories on disk
    errors      what is refused, and what is given up on

None of it imports a trainer; rejection needs torch.
"""
