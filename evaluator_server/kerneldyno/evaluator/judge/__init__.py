"""The trusted side of the wall: one judge process for each device.

Reading order: `service` speaks with the evaluator server, `lane` takes one candidate through its stages with a runner from
`pool`, `problems` keeps references hot, `trial` compares (`compare`), `timing` holds the clock, `lease` the device,
`verdict` writes the result.
"""
