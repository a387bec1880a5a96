"""Tests of the report, with real results and in a real browser."""
