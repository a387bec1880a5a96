"""Tests of rollouts against a scripted model."""
