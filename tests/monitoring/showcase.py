"""Program that draws the pictures of docs/monitoring.md: real services under a load like that of a training.

    python -m tests.monitoring.showcase --minutes 4 --out docs/images

A real Prometheus watches the services. They get a file of candidates (`examples/problems`) and the turns of a policy
that learns: answers without code and wrong answers become fewer from step to step, and for a while in the middle the
policy tries a decoy, which is caught. With KERNELDYNO_REQUIRE_GPU=1 this machine's GPU judges and is shown; without it
the pictures show made-up GPUs (gpu_exporter.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.dashboards import pictures
from kerneldyno.client import Client, EvalRequest, RewardSpec, Turn, turn
from kerneldyno.rpc.jsonio import request_from_json
from tests.monitoring.live import FAST, PROBLEMS, Cluster, cluster
from tests.monitoring.prometheus_server import impatient, serving

#: Turns in one step.
TURNS = 24
REWARD = RewardSpec(preset="drkernel", incorrect_reward=-0.1, failure_reward=-0.2, rejected_reward=-0.5)
CHOICES = {
    "right": ("triton_blocks", "triton_strided"),
    "wrong": ("wrong_threshold", "wrong_dtype"),
    "fails": ("syntax_error",),
    "cheats": ("decoy",),
}


def mix(progress: float) -> dict[str, float]:
    """Return the weights of the kinds of answers after this share of the training."""
    cheats = max(0.0, 0.35 - abs(progress - 0.55) * 1.6)
    return {
        "right": 0.1 + 0.6 * progress,
        "wrong": 0.5 - 0.3 * progress,
        "fails": 0.2 - 0.15 * progress,
        "cheats": cheats,
        "talks": 0.25 * (1 - progress),
    }


def step(number: int, progress: float, chance: random.Random) -> list[Turn]:
    """Return the turns of one step, on one problem."""
    relu = PROBLEMS / "relu"
    reference, weights, made = (relu / "reference.py").read_text(), mix(progress), []
    for sample in range(TURNS):
        (kind,) = chance.choices(list(weights), list(weights.values()))
        text = "I would rather talk about it."
        if kind != "talks":
            code = (relu / f"{chance.choice(CHOICES[kind])}.py").read_text()
            text = f"```python\n{code}\n# {number} {sample // 2}\n```"  # two turns of a step may have the same code
        made.append(turn(f"step-{number}", sample, 0, reference_code=reference, response_text=text, **FAST))
    return made


def file_of_candidates() -> Iterator[EvalRequest]:
    """Yield the examples that are not CUDA and not dangerous, without end; every second round is new work."""
    expected = json.loads((PROBLEMS / "expected.json").read_text())
    plain = [
        (name, about["backend"])
        for name, about in expected.items()
        if about["backend"] != "cuda" and not about.get("dangerous")
    ]
    for turn_number in itertools.count():
        for name, backend in plain:
            problem = PROBLEMS / name.split("/")[0]
            code = (PROBLEMS / f"{name}.py").read_text() + f"\n# {turn_number // 2}"
            fields = {"reference_code": (problem / "reference.py").read_text(), "kernel_code": code, "backend": backend}
            fields |= {"id": f"{name}-{turn_number}", "priority": "PRIORITY_LOW"}
            yield request_from_json({"num_perf_trials": 10, **fields})


def load(running: Cluster, seconds: float) -> None:
    """Make both loads and kill one judge, until the time is up. Cancel the work that is not done by then."""
    worker = threading.Thread(target=batch, args=(running, seconds), daemon=True)
    worker.start()
    begun, chance, killed = time.monotonic(), random.Random(7), False
    with Client(running.address, client_id="trainer") as client:
        for number in itertools.count():
            left = seconds - (time.monotonic() - begun)
            if left < 1:
                break
            if left < 0.2 * seconds and not killed:
                killed = True
                running.kill_judge()
            turns = step(number, 1 - left / seconds, chance)
            for _ in client.rewards(turns, REWARD, timeout=left, on_missing="yield"):
                pass
    worker.join(10)


def batch(running: Cluster, seconds: float) -> None:
    """Evaluate the file of candidates at low priority."""
    with Client(running.address, client_id="batch", window=24) as client:
        for _ in client.evaluate(file_of_candidates(), timeout=seconds):
            pass


def main() -> int:
    """Run the program and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with cluster(folder, max_queued=64) as running:
            targets = running.targets
            if os.environ.get("KERNELDYNO_REQUIRE_GPU"):
                targets["kerneldyno-evaluator"].remove(running.gpus_page)
            with serving(folder, targets, impatient(folder)) as prometheus:
                load(running, 60 * options.minutes)
                arguments = [
                    "--prometheus",
                    prometheus.url,
                    "--minutes",
                    str(options.minutes),
                    "--out",
                    str(options.out),
                ]
                return pictures.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
