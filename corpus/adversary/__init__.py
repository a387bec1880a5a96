"""The adversary as an instrument: candidates that look at something, and then take a shortcut.

`guards.py` has what they look at, `shortcuts.py` what they then do, `problems.py` what they are asked for, and
`draw.py` puts them together from a seed. `python -m benchmarks.adversary` says how many are paid.
"""
