"""T07: the evaluator's own timed loop is replaced by a kinder one.

Every function called run_burst, in every module, is replaced by one that does the same but starts the watch after the work. On an evaluator
without such a function it does nothing but the work.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import sys

import torch
import torch.nn as nn


def kinder(original):
    def run_burst(call, station, *rest, **more):
        class Watch:
            def __init__(self, watch):
                self.watch = watch

            def start(self, step):
                pass

            def stop(self, step):
                self.watch.start(step)
                self.watch.stop(step)

            def seconds(self):
                return self.watch.seconds()

        make = type(station.device).stopwatch
        type(station.device).stopwatch = lambda self, count: Watch(make(self, count))
        try:
            return original(call, station, *rest, **more)
        finally:
            type(station.device).stopwatch = make

    return run_burst


for module in list(sys.modules.values()):
    function = getattr(module, "__dict__", {}).get("run_burst")
    if type(function) is type(kinder):
        module.run_burst = kinder(function)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        return work(x)
