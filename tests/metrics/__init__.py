"""The metrics pages of all services, compared with docs/metrics.md."""
