"""Observers of `core` that report: Prometheus metrics, trace spans, and one log line for each transition."""
