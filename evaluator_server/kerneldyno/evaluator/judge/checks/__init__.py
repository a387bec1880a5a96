"""Checks of one candidate.

`candidate` gives it orders, `correctness` compares its answers, and `provenance` checks whether its own kernels made
them. `arithmetic` and `explained` distinguish rounding from mistakes.
"""
