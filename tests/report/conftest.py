"""Fixtures: real results of real services, the pages made from them, and a browser that opens the pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from typer.testing import CliRunner

from kerneldyno.cli import app
from kerneldyno.cli.results_file import ResultsFile
from kerneldyno.client import Client, EvalRequest, LocalServices, turn
from kerneldyno.rewards.trajectories import TrajectoryWriter, TurnRecord
from kerneldyno.rpc.jsonio import request_from_json, request_to_json
from tests.needed import needs
from tests.report.report_candidates import BATCH, EPISODES, Recorded, reference

#: Interpreted kernels are slow, and their times mean nothing.
QUICK = {"num_perf_trials": 3, "num_warmup": 0, "num_correct_trials": 1, "stress_inputs": False}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Files with the results of a real scheduler, evaluator and judge for the candidates of report_candidates.py."""
    folder = tmp_path_factory.mktemp("recorded")
    files = Recorded(folder / "results.jsonl", folder / "requests.jsonl", folder / "run.jsonl", folder / "list.json")
    requests = [request_from_json({"id": name, **QUICK, **fields}) for name, fields in BATCH.items()]
    files.requests.write_text("".join(json.dumps(request_to_json(request)) + "\n" for request in requests))
    with LocalServices(devices="cpu", lanes=2) as services:
        _batch(services.address, requests, files.results)
        listed = CliRunner().invoke(app, ["evaluations", "--json", "--address", services.address])
        files.listing.write_text(listed.stdout)
        _train(services.address, files.turns)
        services.check()
    return files


def _batch(address: str, requests: list[EvalRequest], path: Path) -> None:
    with Client(address) as client, ResultsFile(path) as results:
        for result in client.evaluate(requests):
            results.append(result)


def _train(address: str, path: Path) -> None:
    turns = [
        turn(problem, sample, number, reference_code=reference(problem), response_text=text, **fields, **QUICK)
        for (problem, sample), said in EPISODES.items()
        for number, (text, fields) in enumerate(said)
    ]
    said = {(one.group, one.sample, one.turn_index): one.response_text for one in turns}
    with Client(address) as client, TrajectoryWriter(path) as writer:
        for answer in client.rewards(turns, "kevin"):
            place = answer.group, answer.sample, answer.turn_index
            writer.write(TurnRecord.from_answer(answer, problem_id=answer.group, response=said[place]))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """An installed Chromium without a window.

    While it runs, this thread runs an event loop, so no test of the same module can be async.
    """
    found = needs("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found)
        yield running
        running.close()
