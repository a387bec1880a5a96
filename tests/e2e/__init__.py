"""Tests of all parts together: scheduler, evaluator, judges, candidates, clients."""
