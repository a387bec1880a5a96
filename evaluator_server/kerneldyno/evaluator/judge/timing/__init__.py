"""How fast a candidate is, beside its reference.

Reading order: `rounds` times both sides in turn, `bursts` makes calls on inputs from `supply`, `device_time` and
`end_to_end_time` turn them into times, `ratio` into a speedup, `report` into the result. `reference_runners` keeps the
reference's processes, `quiet` waits until the device is idle, `processors` chooses the processors that timing uses.
"""
