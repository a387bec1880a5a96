"""Tests that need a GPU, with real services."""
