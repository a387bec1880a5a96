"""Running the services under another system. Importing this package imports nothing else.

    ray         starts a scheduler and evaluators on the nodes of a Ray cluster
    supervisor  runs one service as a child process and restarts it when it ends
    health      asks a service for its health, for probes
    errors      the exceptions that this package raises

Containers, Kubernetes, Slurm and systemd need no Python code of this package: see deploy/ and docs/deploying.md.
"""
