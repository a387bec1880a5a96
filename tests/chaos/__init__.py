"""The reliability suite: real processes, real sockets, and faults on purpose. docs/reliability.md is what it prints."""
