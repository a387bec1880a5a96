"""Services placed by another system's means. Nothing heavy is imported here.

    ray         a scheduler and evaluators on the nodes of a Ray cluster
    supervisor  one service as a child process, started again when it ends
    errors      what is raised when services cannot be started

Containers, Kubernetes, Slurm and systemd need no Python of ours: see deploy/ and docs/deploying.md.
"""
