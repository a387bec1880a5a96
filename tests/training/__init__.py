"""Tests of the mathematics of multi-turn RL."""
