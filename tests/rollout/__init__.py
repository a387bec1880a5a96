"""Rollouts against a scripted model."""
