"""Scheduler, evaluator and gateway as a person starts them, their pages before and after a small, hostile load."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "monitoring"))
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from e2e_harness import REFERENCE, candidate, judge_of, outcome, request
from kerneldyno.client import AsyncClient, EvalRequest, EvalResult
from kerneldyno.client.errors import KernelDynoError
from live import candidates, cluster, turns

from scraped import Scrape

#: Names and labels that would break a page, or fill it, if they ever got there.
HOSTILE = ['x"} 1e99\n# TYPE evil counter\nevil_total 7\n', "\\\\\\n{job='a'}", "ünï💥", "a" * 100]


@dataclass(frozen=True)
class Watched:
    """Pages by process ("scheduler", "evaluator", "gateway"), and what was done in between."""

    before: dict[str, Scrape]
    after: dict[str, Scrape]
    outcomes: Counter[str]
    """Of results that were received by Evaluate."""
    findings: Counter[str]
    turns: Counter[str]
    rewards: list[float]

    def grown(self, process: str, name: str, **labels: str) -> float:
        """By how much series grew."""
        return self.after[process].value(name, **labels) - self.before[process].value(name, **labels)


@contextmanager
def watching(folder: Path) -> Iterator[Watched]:
    """Start everything, read the pages, make the load, and read them again."""
    with cluster(folder) as services, gateway(services.address, folder) as address:
        pages = {
            "scheduler": f"http://{services.scheduler.ready['metrics']}/metrics",
            "evaluator": f"http://{services.evaluator.ready['metrics']}/metrics",
            "gateway": f"{address}/metrics",
        }
        before = {name: Scrape.of(url) for name, url in pages.items()}
        results, answers = asyncio.run(load(services.address))
        ask_gateway(address)
        time.sleep(1.5)  # a judge reports once a second, and takes what it has not reported along
        judge_of(services.evaluator.process.pid).kill()
        settled(pages["evaluator"])
        ran = [result for result in results if not result.cached and not result.merged]
        yield Watched(
            before,
            {name: Scrape.of(url) for name, url in pages.items()},
            Counter(map(outcome, results)),
            Counter(finding.id for result in ran for finding in result.findings),
            Counter(outcome(a.remeasured if a.HasField("remeasured") else a.result) for a in answers),
            [answer.reward for answer in answers if answer.HasField("reward")],
        )


@contextmanager
def gateway(scheduler: str, folder: Path) -> Iterator[str]:
    """`kerneldyno gateway` with one problem, "mine"; yields its URL."""
    problems = folder / "problems.jsonl"
    problems.write_text(json.dumps({"id": "mine", "reference_code": REFERENCE}) + "\n")
    options = ["--listen", "127.0.0.1:0", "--scheduler", scheduler, "--problems", str(problems)]
    fields = {"backend": "torch", "num_correct_trials": 1, "stress_inputs": False, "num_perf_trials": 5}
    options += ["--request", json.dumps(fields)]
    command = [sys.executable, "-m", "kerneldyno.client", "gateway", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            assert said[:1] == ["gateway"], "the gateway has ended"
            yield said[1]
        finally:
            process.terminate()


async def load(address: str) -> tuple[list[EvalResult], list[Any]]:
    """Work of all kinds under hostile names, by every call; the answers."""
    hostile = [request(f"{index}{name}"[:100], f"x = {name!r} and x") for index, name in enumerate(printable())]
    for one, name in zip(hostile, printable(), strict=True):
        one.labels[name[:60]] = name
        one.device.node_labels[name[:60]] = name
        one.salt = name[:60]
    for one in hostile:  # no node has such labels: these are given up after the limit for what matches nothing
        one.kernel_code += f"# {HOSTILE[0]!r}"
    invalid = [EvalRequest(id="nothing"), request("salted", backend="pascal")]
    async with AsyncClient(address, client_id=f"team/{printable()[0]}"[:100]) as client:
        results = [result async for result in client.evaluate([*candidates("m"), *hostile])]
        for one in invalid:
            try:
                await client.evaluate_once(one)
            except KernelDynoError:
                continue
            raise AssertionError("it is malformed")
        results.append(await client.evaluate_once(request("once", "x = x + 1 - 1")))
        answers = [answer async for answer in client.rewards(turns("m"), reward="drkernel")]
    return results, answers


def printable() -> list[str]:
    """The hostile names that a request may have."""
    return ["".join(character for character in name if character.isprintable()) for name in HOSTILE]


def ask_gateway(url: str) -> None:
    """One reward, and requests that are refused."""
    answer = f"```python\n{candidate('x = x * 1', 'gateway')}\n```"
    for path, body, status in (
        ("/rm", {"prompt": "", "response": answer, "label": "mine"}, 200),
        ("/rm", {"prompt": "", "response": answer, "label": HOSTILE[0]}, 400),
        (f"/status/{'x' * 50}", None, 404),
        ("/no/such/route", None, 404),
    ):
        asked = urllib.request.Request(url + path, json.dumps(body).encode() if body else None)
        asked.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(asked, timeout=60) as got:
                found = got.status
        except urllib.error.HTTPError as error:
            found = error.code
        assert found == status, path


def settled(evaluator: str, seconds: float = 60.0) -> None:
    """Wait until the judge that was killed has been replaced, and has reported."""
    deadline = time.monotonic() + seconds
    while True:
        page = Scrape.of(evaluator)
        if (
            page.value("kerneldyno_judge_restarts_total", cause="judge") == 1
            and page.value("kerneldyno_device_ready") == 1
            and page.value("kerneldyno_spare_runners") == 2
        ):
            return
        assert time.monotonic() < deadline, "the device did not come back"
        time.sleep(0.2)
