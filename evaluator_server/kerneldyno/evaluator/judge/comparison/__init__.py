"""Comparing outputs with what is right: pure functions on tensors that the judge owns."""
