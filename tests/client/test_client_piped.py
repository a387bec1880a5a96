"""Tests of output into a pipe: one line per row, not folded, cut or padded, so that grep and awk can read it."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from kerneldyno.cli.cards import summary_table, verdict_card
from kerneldyno.cli.piped import PipedConsole
from kerneldyno.v1 import fleet_service_pb2 as fleet
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from tests.client.command import Ran, invoke, run
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually

LONG_ID = "level1/problem-with-a-long-name/" + "0123456789abcdef" * 8
CLIENT = "trainer-" + "x" * 60
LABELS = {f"label{number}": "v" * 50 for number in range(4)}


@pytest.fixture(autouse=True)
def no_width_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes COLUMNS: people who run tests in parallel set it."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
async def history(scheduler: FakeFleet) -> FakeFleet:
    """Two finished evaluations with long names, nodes with long labels, and a quarantine with a long reason."""
    scheduler.submit(CLIENT, EvalRequest(id=LONG_ID, kernel_code="ok", labels=LABELS))
    scheduler.submit("twin", EvalRequest(id="twin-" + LONG_ID, kernel_code="ok", labels=LABELS))
    for node in scheduler.nodes.values():
        node.labels.update(LABELS)
    reason = "3 attempts ended with their node;\nthe last one: " + "reason " * 40
    scheduler.quarantines = [fleet.Quarantine(digest="abcdef01" * 8, reason=reason)]
    await eventually(lambda: all(work.task.done() for work in scheduler.work.values()))
    return scheduler


def row(ran: Ran, *words: str) -> str:
    """Return the only line that contains all of `words`."""
    assert ran.status == 0, ran.err
    assert all(line == line.rstrip() for line in ran.out.splitlines())
    (line,) = [line for line in ran.out.splitlines() if all(word in line for word in words)]
    return line


async def test_evaluations_can_be_searched_for_an_id(history: FakeFleet) -> None:
    ran = await run("evaluations", "--client", CLIENT, "--address", history.address)
    assert f"label3={LABELS['label3']}" in row(ran, LONG_ID, CLIENT, "CORRECT")
    assert len(ran.out.splitlines()) == 3  # heading, rule, row


async def test_every_other_table_has_one_line_a_row(history: FakeFleet) -> None:
    at = ("--address", history.address)
    row(await run("nodes", *at), "node-a", "serving", *LABELS.values())
    quarantined = row(await run("quarantines", *at), "work abcdef01abcdef01")
    assert quarantined.count("reason") == 40
    assert "the last one" in quarantined
    row(await run("top", "--once", *at), "node-a", "serving", f"label3={LABELS['label3']}")
    traced = await run("trace", LONG_ID, "--client-id", CLIENT, *at)
    row(traced, "evaluation", LONG_ID)
    row(traced, "twin-" + LONG_ID, "twin")
    row(await run("describe", *at), "sandbox", "pid_namespace", "others are out of sight")


async def test_columns_still_decide_where_they_are_set(history: FakeFleet) -> None:
    ran = await run("evaluations", "--address", history.address, COLUMNS="60")
    assert max(map(len, ran.out.splitlines())) <= 60


async def test_an_empty_list_says_so(scheduler: FakeFleet) -> None:
    at = ("--address", scheduler.address)
    assert (await invoke("evaluations", *at)).out == "The scheduler knows no evaluation yet.\n"
    assert (await invoke("evaluations", "--unfinished", *at)).out == "No evaluation matches these options.\n"
    assert (await invoke("quarantines", *at)).out == "Nothing is in quarantine.\n"
    scheduler.nodes.clear()
    assert (await invoke("nodes", *at)).out.startswith("No evaluator is registered")
    assert (await invoke("evaluations", "--json", *at)).json == {"evaluations": [], "more": False}


def printed(monkeypatch: pytest.MonkeyPatch, *things: object) -> list[str]:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    for thing in things:
        PipedConsole().print(thing)
    return stream.getvalue().splitlines()


def test_a_card_has_a_heading_and_no_box(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "error: " + "identifier 'x' is undefined; " * 20
    result = EvalResult(id=LONG_ID, outcome=EvalResult.COMPILE_ERROR, message=message)
    heading, first, *facts = printed(monkeypatch, verdict_card(result))
    assert (heading, first) == ("COMPILE_ERROR", message.rstrip())
    assert all(not set(line) & set("│╭╰") for line in facts)


def test_a_title_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    title = "12 requests, 3 of them judged before, and more words than the table is wide"
    assert printed(monkeypatch, summary_table(Counter({"CORRECT": 1}), title))[0] == title


async def test_a_batch_into_a_file(scheduler: FakeFleet, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "reference_code": "r", "kernel_code": "ok"}\n')
    ran = await run("batch", tasks, "-o", tmp_path / "results.jsonl", "--address", scheduler.address)
    assert ran.out.splitlines()[0] == "1 requests"
    row(ran, "CORRECT", "100.0%")
    again = await run("batch", tasks, "-o", tmp_path / "results.jsonl", "--address", scheduler.address)
    assert again.out.splitlines()[0] == "1 requests, 1 of them judged before"
    row(again, "CORRECT", "100.0%")
