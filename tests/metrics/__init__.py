"""Tests that compare the metrics pages of all services with docs/metrics.md."""
