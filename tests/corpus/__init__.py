"""Tests that run the corpus of candidates on a real judge."""
