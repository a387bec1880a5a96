"""The trusted side of the sandbox: one judge process for each device.

Reading order: `service` speaks with the evaluator server, and `lane` takes one candidate through its stages. Below
them, each folder imports only those before it: `runners` (the processes), `comparison` (of outputs with the right
ones), `memory` (of the device), `results` (what is recorded), `problems` (what a candidate is compared with), `checks`
(of its answers and kernels), `timing`. tests/evaluator/test_walls.py has the whole table.
"""
