"""Compare outputs with the expected ones: pure functions on tensors that the judge owns."""
