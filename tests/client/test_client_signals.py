"""Tests of signals that end a command: each of them cancels the work that the command has under way."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.client.command import finished, started
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually

PROBLEM = "import torch\nclass Model(torch.nn.Module): ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"

#: Starts the command line as a shell starts a command in the background: with SIGINT ignored.
_IN_BACKGROUND = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom kerneldyno.cli import main\nmain()"
#: Starts it as `nohup` does: with SIGHUP ignored.
_NO_HANGUP = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom kerneldyno.cli import main\nmain()"


def arguments(command: str, folder: Path) -> list[object]:
    """Return the arguments of a command whose only candidate never gets a verdict."""
    (folder / "reference.py").write_text(PROBLEM)
    (folder / "candidate.py").write_text("hang")
    if command == "evaluate":
        return ["evaluate", folder / "reference.py", folder / "candidate.py"]
    if command == "batch":
        task = {"id": "a", "reference_code": PROBLEM, "kernel_code": "hang"}
        (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
        return ["batch", folder / "tasks.jsonl", "--output", folder / "results.jsonl"]
    (folder / "problems").mkdir()
    (folder / "problems" / "a.py").write_text(PROBLEM)
    (folder / "candidates").mkdir()
    (folder / "candidates" / "a.py").write_text("hang")
    return ["suite", folder / "problems", "--candidates", folder / "candidates", "--output", folder / "run"]


@pytest.mark.parametrize("command", ["evaluate", "batch", "suite"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_cancels_what_is_under_way(
    scheduler: FakeFleet, tmp_path: Path, command: str, number: signal.Signals
) -> None:
    async with started(*arguments(command, tmp_path), "--address", scheduler.address) as process:
        await eventually(lambda: bool(scheduler.runs))
        process.send_signal(number)
        ran = await finished(process)
    assert ran.status == 128 + number
    assert "kerneldyno: interrupted" in ran.err
    assert scheduler.cancelled == scheduler.runs


async def test_sigterm_cancels_also_where_a_shell_has_sigint_ignored(scheduler: FakeFleet, tmp_path: Path) -> None:
    command = arguments("evaluate", tmp_path)
    async with started(*command, "--address", scheduler.address, program=_IN_BACKGROUND) as process:
        await eventually(lambda: bool(scheduler.runs))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        ran = await finished(process)
    assert ran.status == 128 + signal.SIGTERM
    assert scheduler.cancelled == scheduler.runs


async def test_a_command_under_nohup_goes_on(scheduler: FakeFleet, tmp_path: Path) -> None:
    command = arguments("evaluate", tmp_path)
    (tmp_path / "candidate.py").write_text("sleep 3")
    async with started(*command, "--address", scheduler.address, program=_NO_HANGUP) as process:
        await eventually(lambda: bool(scheduler.runs))
        process.send_signal(signal.SIGHUP)
        ran = await finished(process)
    assert ran.status == 0, ran.err
    assert scheduler.cancelled == []
