"""The evaluator of one node: a gRPC server, and a judge and a zygote for each device.

`server/` is the node's process. For each device it starts a `judge/`, which is trusted and decides, and a zygote, which
forks `runner/` processes for candidates; `walls/` confine those. `devices/` are CPU and GPU, `toolkits/` define
problems, `backends/` define the languages of candidates, and all folders use `shared/`. tests/evaluator/test_walls.py
lists which folder may import which.
"""
