"""The adapters for verl, TRL and Ray (make test-trainers)."""
