"""Tests of the adapters for verl, TRL and Ray (make test-trainers)."""
