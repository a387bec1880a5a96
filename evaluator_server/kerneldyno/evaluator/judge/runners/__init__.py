"""Runners from the judge's side: single-use processes, of which the judge believes nothing.

`pool` keeps warm ones, `handle` is one of them, `answers` reads what it says, `side` is a runner with its memory,
`lease` stops all but one, and `ladder` finds the walls with which runners start.
"""
