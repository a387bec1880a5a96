"""The maths of multi-turn RL."""
