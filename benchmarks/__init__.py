"""Programs that make the tables of docs/benchmarks.md and docs/scaling.md: `python -m benchmarks.throughput`."""
