"""Runners as the judge holds them: single-use processes of which nothing is believed.

`pool` keeps warm ones, `handle` is one of them, `answers` reads what it says, `side` is a runner with its memory, `lease`
stops all but one, `ladder` finds the walls with which runners start.
"""
