"""Tests of the scheduler: its state machine, its services with scripted nodes, and its process."""
