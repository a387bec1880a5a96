"""E22: looks for the tests: reference, inputs, seeds.

Arguments, environment, open files and everything that it may read in temporary places, searched for a line of every reference.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import glob
import os
import sys

import torch
import torch.nn as nn

LINE = "def get_init_inputs"


def texts():
    yield "arguments", " ".join(sys.argv)
    yield "environment", str(os.environ)
    with open("/proc/self/cmdline") as file:
        yield "command line", file.read()
    patterns = ("/proc/self/fd/*", "/tmp/**", "/dev/shm/**", "/var/tmp/**", f"{os.getcwd()}/**", "/run/**")
    for pattern in patterns:
        for path in glob.glob(pattern, recursive=True)[:5000]:
            try:
                if os.path.isfile(path) and not path.endswith("/candidate.py") and "/kerneldyno/" not in path:
                    with open(path, errors="replace") as file:
                        yield path, file.read(1 << 20)
            except (OSError, ValueError):
                continue


for place, text in texts():
    if LINE in text or "num_correct_trials" in text:
        raise RuntimeError(f"ESCAPED: the tests are in {place}")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
