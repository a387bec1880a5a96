"""A scheduler, evaluator and gateway, started as a person does, and their pages before and after a hostile load."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kerneldyno.client import AsyncClient, EvalRequest, EvalResult
from kerneldyno.client.errors import InvalidRequestError
from tests.e2e.e2e_harness import (
    DEVICES,
    ON_GPU,
    REFERENCE,
    candidate,
    evaluator,
    judge_of,
    outcome,
    request,
    scheduler,
)
from tests.metrics.scraped import Scrape
from tests.monitoring.live import candidates, turns

#: Names and labels that would break or fill a page if they ever reached it.
HOSTILE = ['x"} 1e99\n# TYPE evil counter\nevil_total 7\n', "\\\\\\n{job='a'}", "ünï💥", "a" * 100]


MAX_QUEUED, LANES = 20, 2
#: The first series from the thread that reads the GPUs.
up = ("kerneldyno_gpu_up", frozenset({("device", DEVICES)}))


@dataclass(frozen=True)
class Watched:
    """Pages by process ("scheduler", "evaluator", "gateway"), and the results of the load between them."""

    before: dict[str, Scrape]
    after: dict[str, Scrape]
    sent: int
    """Requests of the Evaluate stream."""
    outcomes: Counter[str]
    """Of their results, and of the one by EvaluateOnce."""
    causes: Counter[str]
    """Of those that are nobody's verdict."""
    findings: Counter[str]
    """Of those that were run."""
    turns: Counter[str]
    """Outcomes of turns."""
    rewards: list[float]

    def grown(self, process: str, name: str, **labels: str) -> float:
        """Return how much the sum of these series grew."""
        return self.after[process].value(name, **labels) - self.before[process].value(name, **labels)


@contextmanager
def watching(folder: Path) -> Iterator[Watched]:
    """Start everything, read the pages, make the load, read the pages again, and yield both."""
    options = ["--store", f"sqlite:{folder / 'scheduler.sqlite'}", "--max-queued", str(MAX_QUEUED)]
    options += ["--unmatched-timeout", "2", "--drain-timeout", "0"]
    size = ["--lanes", str(LANES), "--spares", str(LANES)]
    with (
        scheduler(*options) as serving,
        evaluator(serving.address, "--node-id", "node-a", *size) as judging,
        gateway(serving.address, folder) as address,
    ):
        pages = {
            "scheduler": f"http://{serving.ready['metrics']}/metrics",
            "evaluator": f"http://{judging.ready['metrics']}/metrics",
            "gateway": f"{address}/metrics",
        }
        if ON_GPU:
            settled(pages["evaluator"], lambda page: up in page.values)
        before = {name: Scrape.of(url) for name, url in pages.items()}
        requests = [*candidates("m"), *hostile()]
        results, answers = asyncio.run(load(serving.address, requests))
        ask_gateway(address)
        time.sleep(2.5)  # a judge reports once a second; unreported counts die with it
        settled(pages["evaluator"], reported)
        judge_of(judging.process.pid).kill()
        settled(pages["evaluator"], came_back)
        ran = [result for result in results if not result.cached and not result.merged]
        yield Watched(
            before,
            {name: Scrape.of(url) for name, url in pages.items()},
            len(requests),
            Counter(map(outcome, results)),
            Counter(r.infrastructure_error.cause for r in results if r.HasField("infrastructure_error")),
            Counter(finding.id for result in ran for finding in result.findings),
            Counter(outcome(a.remeasured if a.HasField("remeasured") else a.result) for a in answers),
            [answer.reward for answer in answers if answer.HasField("reward")],
        )


@contextmanager
def gateway(scheduler: str, folder: Path) -> Iterator[str]:
    """Run `kerneldyno gateway` with one problem, "mine", and yield its URL."""
    problems = folder / "problems.jsonl"
    problems.write_text(json.dumps({"id": "mine", "reference_code": REFERENCE}) + "\n")
    options = ["--listen", "127.0.0.1:0", "--scheduler", scheduler, "--problems", str(problems)]
    fields = {"backend": "torch", "num_correct_trials": 1, "stress_inputs": False, "num_perf_trials": 5}
    options += ["--request", json.dumps(fields)]
    command = [sys.executable, "-m", "kerneldyno.cli", "gateway", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            assert said[:1] == ["gateway"], "the gateway has ended"
            yield said[1]
        finally:
            process.terminate()


def hostile() -> list[EvalRequest]:
    """Return requests with hostile names that no node can run: they ask for labels that no node has."""
    made = []
    for index, name in enumerate(printable()):
        one = request(f"{index}{name}"[:100], f"x = {name!r} and x")
        one.labels[name[:60]] = name
        one.device.node_labels[name[:60]] = name
        one.salt = name[:60]
        one.kernel_code += f"# {HOSTILE[0]!r}"
        made.append(one)
    return made


async def load(address: str, requests: list[EvalRequest]) -> tuple[list[EvalResult], list[Any]]:
    """Make every call, malformed ones and an unknown one too. Return the results, and the answers for turns."""
    async with asyncio.timeout(120), AsyncClient(address, client_id=f"team/{printable()[0]}"[:100]) as client:
        results = [result async for result in client.evaluate(requests)]
        for one in (EvalRequest(id="nothing"), request("no backend", backend="pascal")):
            try:
                await client.evaluate_once(one)
            except InvalidRequestError:
                continue
            raise AssertionError("it is malformed")
        results.append(await client.evaluate_once(request("once", "x = x + 1 - 1")))
        answers = [answer async for answer in client.rewards(turns("m"), reward="drkernel")]
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            await channel.unary_unary("/evil.Service/Evil")(b"")
        except grpc.aio.AioRpcError as error:
            unknown = error.code()
    assert unknown is grpc.StatusCode.UNIMPLEMENTED
    return results, answers


def printable() -> list[str]:
    """Return the hostile names, reduced to the characters that a request may have."""
    return ["".join(character for character in name if character.isprintable()) for name in HOSTILE]


def ask_gateway(url: str) -> None:
    """Ask the gateway for one reward, and for things that it refuses."""
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


def reported(page: Scrape) -> bool:
    """Return whether the judge has reported that no runner is taken and that all spares are back."""
    return page.value("kerneldyno_taken_runners") == 0 and page.value("kerneldyno_spare_runners") == LANES


def came_back(page: Scrape) -> bool:
    """Return whether a new judge has replaced the killed one and has reported."""
    return (
        page.value("kerneldyno_judge_restarts_total", cause="judge") == 1
        and page.value("kerneldyno_device_ready") == 1
        and page.value("kerneldyno_spare_runners") == LANES
        and (not ON_GPU or up in page.values)
    )


def settled(url: str, condition: Callable[[Scrape], bool], seconds: float = 60.0) -> None:
    """Wait until the page satisfies the condition."""
    deadline = time.monotonic() + seconds
    while not condition(Scrape.of(url)):
        assert time.monotonic() < deadline, f"{condition.__name__} is not so after {seconds:g} s"
        time.sleep(0.2)
