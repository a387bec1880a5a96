"""Everything together: scheduler, evaluator, judges, candidates, clients."""
