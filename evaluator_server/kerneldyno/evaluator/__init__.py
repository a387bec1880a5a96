"""The evaluator of one node: a gRPC server, and behind it a judge and a zygote for each device.

`server/` is the node's process. It starts for each device a `judge/`, which is trusted and decides, and a zygote, which
forks `runner/` processes for candidates, behind `walls/`. `devices/` is what they run on, `toolkits/` says what a problem
is, `backends/` what a candidate is written in; `shared/` is used by all. tests/evaluator/test_walls.py lists which folder
may import which.
"""
