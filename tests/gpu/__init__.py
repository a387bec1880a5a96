"""Tests that only a GPU can answer, through real services."""
