"""The reliability suite: faults in real processes and on real sockets. docs/reliability.md has its results."""
