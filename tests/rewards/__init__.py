"""Tests of rewards and feedback, which are made from a verdict."""
