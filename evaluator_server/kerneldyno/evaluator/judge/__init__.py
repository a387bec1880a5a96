"""The trusted side of the wall: one judge process for each device.

Reading order: `service` speaks with the evaluator server, `lane` takes one candidate through its stages. Below them, each
folder imports only those before it: `runners` (the processes), `comparison` (outputs with right ones), `memory` (of the
device), `results` (what is written down), `problems` (what a candidate is held against), `checks` (of its answers and
kernels), `timing`. tests/evaluator/test_walls.py has the whole table.
"""
