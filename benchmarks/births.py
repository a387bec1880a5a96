"""Measure the upper limit of process-per-candidate isolation: single-use CUDA processes a second, on one or more GPUs.

    python -m benchmarks.births [--devices 1,2,4] [--at-once 8] [--seconds 3]

For each GPU one process imports torch and forks children, `--at-once` of them concurrently. Each child opens the
device, launches one kernel, and is killed. There is no sandbox, no candidate and no service, so the result is the
driver's cost of creating and destroying contexts. A runner of the service can open the device file of one GPU only.
Nothing but CUDA_VISIBLE_DEVICES restricts a child to one GPU here. Needs a GPU.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import signal
import sys
import time
from typing import Any

import torch

#: Time limit in seconds for importing torch.
_START_SECONDS = 120.0


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure how many single-use CUDA processes a host makes a second.")
    parser.add_argument("--devices", default="1", help="numbers of GPUs to use at once, as 1,2,4 (default: 1)")
    parser.add_argument("--at-once", type=int, default=8, help="concurrent processes on each GPU (default: 8)")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration for each number of GPUs (default: 3)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("births.py needs an NVIDIA GPU and a PyTorch that can use it", file=sys.stderr)
        return 2
    print("| GPUs | processes a second | a context, seconds |\n| ---: | ---: | ---: |")
    for devices in map(int, options.devices.split(",")):
        rate, seconds = _measure(devices, options.at_once, options.seconds)
        print(f"| {devices} | {rate:.1f} | {seconds:.2f} |", flush=True)
    return 0


def _measure(devices: int, at_once: int, seconds: float) -> tuple[float, float]:
    """Return the processes a second on all devices together, and the mean seconds from fork to a finished kernel."""
    context = multiprocessing.get_context("spawn")
    ready, rows = context.Barrier(devices), context.Queue()
    parents = [context.Process(target=_fork, args=(gpu, ready, rows, seconds, at_once)) for gpu in range(devices)]
    for parent in parents:
        parent.start()
    found = [rows.get(timeout=_START_SECONDS + 10 * seconds) for _ in parents]
    for parent in parents:
        parent.join()
    return sum(born / took for born, took, _ in found), sum(opening for *_, opening in found) / devices


def _fork(gpu: int, ready: Any, rows: Any, seconds: float, at_once: int) -> None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    name = visible.split(",")[gpu] if visible else str(gpu)
    os.environ.update(CUDA_VISIBLE_DEVICES=name, CUDA_DEVICE_MAX_CONNECTIONS="1")  # read when CUDA is first used
    told, tell = os.pipe()
    ready.wait(_START_SECONDS)
    begin = time.monotonic()
    born = alive = 0
    opening = 0.0
    while alive or time.monotonic() - begin < seconds:
        while alive < at_once and time.monotonic() - begin < seconds:
            if os.fork() == 0:
                forked, took = time.monotonic(), math.nan
                try:
                    torch.zeros(1, device="cuda").add_(1)
                    torch.cuda.synchronize()
                    took = time.monotonic() - forked
                finally:
                    os.write(tell, f"{took:8.4f}".encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            alive += 1
        os.wait()
        alive, born, opening = alive - 1, born + 1, opening + float(os.read(told, 8))
    rows.put((born, time.monotonic() - begin, opening / born))


if __name__ == "__main__":
    sys.exit(main())
