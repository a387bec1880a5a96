"""The corpus of candidates on a real judge."""
