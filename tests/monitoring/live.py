"""Services to watch, started as a person starts them, and candidates and turns for them to judge.

The services are a scheduler, an evaluator and a gateway. A page of made-up GPUs (gpu_exporter.py) runs beside them, so
that these tests need no GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneldyno.client import EvalRequest, Turn, turn
from kerneldyno.rpc.jsonio import request_from_json
from tests.e2e.e2e_harness import PROBLEMS, REFERENCE, Service, candidate, evaluator, judge_of, request, scheduler

#: The scheduler's limit of waiting work, so small that a test can reach it.
MAX_QUEUED = 20
#: Seconds until an evaluation that no node can run fails.
UNMATCHED_SECONDS = 3
#: The least work that gives a verdict and a time.
FAST: dict[str, Any] = {"num_correct_trials": 1, "stress_inputs": False, "num_perf_trials": 5}


@dataclass(frozen=True)
class Cluster:
    """All services and the made-up GPUs, started and ready."""

    scheduler: Service
    evaluator: Service
    gateway: subprocess.Popen[str]
    gateway_address: str
    gpus: subprocess.Popen[str]
    gpus_page: str

    @property
    def address(self) -> str:
        """Return the address of the scheduler."""
        return self.scheduler.address

    @property
    def targets(self) -> dict[str, list[str]]:
        """Return the targets for Prometheus, by job."""
        return {
            "kerneldyno-scheduler": [self.scheduler.ready["metrics"]],
            "kerneldyno-evaluator": [self.evaluator.ready["metrics"], self.gpus_page],
            "kerneldyno-gateway": [self.gateway_address],
        }

    def ask_gateway(self, path: str, **body: Any) -> int:
        """Send a GET, or a POST if there is a body, and return the status of the answer."""
        data = json.dumps(body).encode() if body else None
        asked = urllib.request.Request(
            f"http://{self.gateway_address}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def kill_judge(self) -> None:
        """Send SIGKILL to the judge of the evaluator's device."""
        judge_of(self.evaluator.process.pid).kill()

    def tell_gpus(self, line: str) -> None:
        """Make something happen to the first made-up GPU; see gpu_exporter.py."""
        assert self.gpus.stdin is not None
        self.gpus.stdin.write(f"{line}\n")
        self.gpus.stdin.flush()


@contextmanager
def cluster(folder: Path, max_queued: int = MAX_QUEUED) -> Iterator[Cluster]:
    """Run a scheduler with a journal on disk, an evaluator on this machine's device, a gateway and the page of GPUs."""
    options = ["--store", f"sqlite:{folder / 'scheduler.sqlite'}", "--max-queued", str(max_queued)]
    options += ["--heartbeat", "0.5", "--lease", "2", "--unmatched-timeout", str(UNMATCHED_SECONDS), "--settle", "inf"]
    with (
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("gpu_exporter.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as gpus,
        scheduler(*options, "--drain-timeout", "0") as serving,
        gateway(serving.address, folder) as door,
        evaluator(serving.address, "--node-id", "node-a") as judging,
    ):
        assert gpus.stdout is not None
        assert door.stdout is not None
        address = door.stdout.readline().split()[1].removeprefix("http://")
        page = gpus.stdout.readline().split("metrics=")[1].strip()
        yield Cluster(serving, judging, door, address, gpus, page)


@contextmanager
def gateway(scheduler: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `kerneldyno gateway` with one problem, "mine"."""
    problems = folder / "problems.jsonl"
    problems.write_text(json.dumps({"id": "mine", "reference_code": REFERENCE}) + "\n")
    options = ["--listen", "127.0.0.1:0", "--scheduler", scheduler, "--problems", str(problems)]
    options += ["--request", json.dumps({"backend": "torch", **FAST})]
    command = [sys.executable, "-m", "kerneldyno.cli", "gateway", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def candidates(mark: str) -> list[EvalRequest]:
    """Return candidates: correct and timed, wrong, raising, too slow, not Python, without ModelNew, cheating."""
    timed = {"run_performance": True, "num_perf_trials": 5}
    mix = [request(f"{mark}-right-{i}", **timed) for i in range(4)]
    mix += [request(f"{mark}-wrong-{i}", "x = x + 1") for i in range(2)]
    mix += [
        request(f"{mark}-raises", "raise KeyError(1)"),
        request(f"{mark}-slow", "time.sleep(30)", timeouts={"compile_timeout": "1s", "correctness_timeout": "1s"}),
        request(f"{mark}-python", kernel_code="class ModelNew(:"),
        request(f"{mark}-nothing", kernel_code="x = 1"),
        cheating(mark),
    ]
    # This repeats work: the run under way, or its kept result, answers it.
    mix.append(request(f"{mark}-again", kernel_code=mix[0].kernel_code, **timed))
    mix.append(request(f"{mark}-native"))
    # No cache has this library.
    mix[-1].kernel_files.add(path="one.cpp", content=f'extern "C" int one() {{ return 1; }} // {uuid.uuid4()}')
    return mix


def cheating(mark: str) -> EvalRequest:
    """Return a request for a decoy, whose kernel is never launched."""
    relu = PROBLEMS / "relu"
    fields = {
        "reference_code": (relu / "reference.py").read_text(),
        "kernel_code": (relu / "decoy.py").read_text() + f"# {mark}",
    }
    return request_from_json({"id": f"{mark}-decoy", "backend": "triton", **fields, **FAST})


def cheating_turns(mark: str, count: int) -> list[Turn]:
    """Return turns with the code of that decoy, each a little different."""
    relu = PROBLEMS / "relu"
    reference, decoy = (relu / "reference.py").read_text(), (relu / "decoy.py").read_text()
    code = [f"```python\n{decoy}\n# {mark} {index}\n```" for index in range(count)]
    return [
        turn(f"{mark}-{index}", 0, 0, reference_code=reference, response_text=said, backend="triton", **FAST)
        for index, said in enumerate(code)
    ]


def hopeless_turns(mark: str, count: int) -> list[Turn]:
    """Return turns of broken problems, which get no reward."""
    reference = "raise RuntimeError('this reference cannot be imported')"
    code = f"```python\n{candidate()}\n```"
    return [
        turn(f"{mark}-{i}", 0, 0, reference_code=f"{reference}\n# {i}", response_text=code, backend="torch", **FAST)
        for i in range(count)
    ]


def turns(mark: str) -> list[Turn]:
    """Return episodes of two turns: with correct, wrong and raising answers, and with answers without code."""
    bodies = {"right": "pass", "wrong": "x = x + 1", "raises": "raise KeyError(1)"}
    return [
        turn(f"{mark}-{name}", sample, index, reference_code=REFERENCE, response_text=said, backend="torch", **FAST)
        for name, text in {**{n: candidate(b) for n, b in bodies.items()}, "talks": ""}.items()
        for sample in range(2)
        for index in range(2)
        for said in [f"```python\n{text}\n# {mark} {sample} {index}\n```" if text else "I would rather talk about it."]
    ]
