"""Tests of files that a command does not expect: devices, pipes, folders, files larger than memory, full outputs."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.command import NOBODY, Ran, finished, invoke, run, started
from tests.client.fake_fleet import FakeFleet
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.slow

#: Memory limit: too little to read a large file as a whole.
MEMORY_KIB = 16 << 20
LARGE_BYTES = 30 << 30
SECONDS = 60
TASK = '{"id": "a", "kernel_code": "k"}\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files of each kind."""
    for name in ("large.py", "large.jsonl"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(LARGE_BYTES)  # a sparse file: it needs no disk space
    (tmp_path / "ref.py").write_text("class Model: ...\n\n\ndef get_inputs():\n    return []\n")
    (tmp_path / "own.py").write_text("class ModelNew: ...\n")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    (tmp_path / "tasks.jsonl").write_text(TASK)
    (tmp_path / "results.jsonl").write_text('{"id": "a", "outcome": "CORRECT"}\n')
    (tmp_path / "folder").mkdir()
    return tmp_path


def shell(place: Path, script: str, address: str = NOBODY) -> Ran:
    """Run a shell script in the folder with little memory. `$K` is the command line."""

    environment = {**os.environ, "KERNELDYNO_ADDRESS": address, "K": f"{sys.executable} -m kerneldyno.cli"}
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"ulimit -v {MEMORY_KIB}; {script}"],
        cwd=place,
        env=environment | {"P": sys.executable},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Limits the memory of this process, as `shell` limits that of its commands."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_KIB << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("evaluate ref.py large.py", "cannot read large.py: is longer than 16 MiB"),
        ("evaluate ref.py /dev/zero", "cannot read /dev/zero: is a device, not a file"),
        ("evaluate ref.py folder", "folder has no source: put candidate.py, or a .cu or .cpp file, into it"),
        ("evaluate ref.py latin.py", "latin.py is not UTF-8 text"),
        ("vet large.py", "cannot read large.py: is longer than 16 MiB"),
        ("batch large.jsonl -o r", "large.jsonl: this is not JSON Lines: its first line is longer than"),
        ("batch /dev/zero -o r", "/dev/zero: is a device, not a file"),
        ("batch folder -o r", "folder: Is a directory"),
        ("batch latin.py -o r", "latin.py: this is not JSON Lines"),
        ("batch tasks.jsonl -o large.jsonl", "line 1 of large.jsonl is not a result"),
        ("suite large.py --against-itself -o r", "large.py: is longer than 16 MiB"),
        ("suite large.jsonl --against-itself -o r", "large.jsonl, line 1: longer than"),
        ("rollout large.jsonl --dry-run", "large.jsonl, line 1: longer than"),
        ("rollout /dev/zero --dry-run", "/dev/zero is none of: a folder, a .py, .jsonl or .parquet file"),
        ("rollout ref.py --request large.json --dry-run", "--request large.json: No such file"),
        ("rollout ref.py --model m -o /dev/full", "/dev/full is not a regular file"),
        ("trajectories large.jsonl", "large.jsonl, line 1: longer than"),
        ("trajectories /dev/zero", "/dev/zero is not a regular file"),
        ("report large.jsonl -o r", "large.jsonl holds neither results nor trajectories: line 1 is longer than"),
        ("report /dev/zero -o r", "/dev/zero: is a device, not a file"),
        ("report results.jsonl --requests /dev/zero -o r", "/dev/zero: is a device, not a file"),
        ("suite --saved /dev/zero", "/dev/zero: is a device, not a file"),
        ("gateway --problems large.jsonl", "large.jsonl, line 1: longer than"),
    ],
)
async def test_an_input_that_cannot_be_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.chdir(place)
    ran = await invoke(*command.split(), KERNELDYNO_ADDRESS=NOBODY)
    assert ran.status == 2, ran.err
    assert said in ran.err
    assert not (place / "r").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("$K evaluate ref.py large.py", "cannot read large.py: is longer than 16 MiB"),
        ("$K batch /dev/zero -o r", "/dev/zero: is a device, not a file"),
        ("$K nodes --token-file /dev/zero", "from /dev/zero: is a device, not a file"),
        ("$K nodes --tls-ca large.py", "cannot read CA certificates from large.py: is longer than 16 MiB"),
        ("$K vet <(cat ref.py)", "is not a regular file, but another process must read it again"),
        ("ln large.py large.json; $K rollout ref.py --reward large.json --dry-run", "large.json: is longer than"),
        ("$P -m kerneldyno.rollout.stand_in nodir", "nodir/expected.json: No such file or directory; give a folder"),
        ("$P -m kerneldyno.rollout.stand_in large.py", "large.py/expected.json: Not a directory"),
        ("echo [] > folder/expected.json; $P -m kerneldyno.rollout.stand_in folder", "does not have the form of"),
    ],
)
def test_an_input_that_cannot_be_read_by_a_process(place: Path, script: str, said: str) -> None:
    ran = shell(place, script)
    assert ran.status == 2, ran.err
    assert said in ran.err
    assert not (place / "r").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "$K batch tasks.jsonl -o /dev/full",
            "/dev/full is not a regular file; a run that continues must read it again",
        ),
        ("$K batch tasks.jsonl -o /dev/stdout | cat", "/dev/stdout is standard output, where the summary goes"),
        ("$K batch tasks.jsonl -o mixed > mixed", "mixed is standard output, where the summary goes"),
        ("$K batch tasks.jsonl -o folder", "folder: Is a directory"),
        ("$K batch tasks.jsonl -o /proc/r", "/proc/r: No such file"),
        ("$K suite ref.py --against-itself -o /dev/full", "/dev/full: File exists"),
        ("$K suite ref.py --against-itself -o ref.py", "ref.py: File exists"),
        ("$K report results.jsonl -o /dev/full", "/dev/full: No space left on device"),
        ("$K report results.jsonl -o folder", "folder: Is a directory"),
        ("$K report results.jsonl -o p.html --json > /dev/full", "standard output: No space left on device"),
        ("$K suite --saved results.jsonl > /dev/full", "standard output: No space left on device"),
        ("$K trajectories results.jsonl --parquet /dev/null", "--parquet /dev/null: is not a regular file"),
        ("$K --help > /dev/full", "standard output: No space left on device"),
        ("$K completion bash > /dev/full", "standard output: No space left on device"),
    ],
)
def test_an_output_that_cannot_be_written(place: Path, script: str, said: str) -> None:
    ran = shell(place, script)
    assert ran.status == 2, ran.err
    assert said in ran.err


@pytest.mark.parametrize("options", ["", "--json"])
async def test_a_verdict_that_cannot_be_printed(scheduler: FakeFleet, place: Path, options: str) -> None:
    script = f"$K evaluate ref.py own.py {options} > /dev/full"
    ran = await asyncio.to_thread(shell, place, script, scheduler.address)
    assert ran.status == 2
    assert ran.err == "kerneldyno: standard output: No space left on device\n"


async def test_a_disk_that_is_full_is_said_and_costs_no_verdict(scheduler: FakeFleet, place: Path) -> None:
    many = "".join(json.dumps({"id": f"r{number}", "kernel_code": "k"}) + "\n" for number in range(40))
    (place / "tasks.jsonl").write_text(many)
    limited = "ulimit -f 8; $K batch tasks.jsonl -o r.jsonl"  # 8 KiB per file; Python ignores the signal SIGXFSZ
    ran = await asyncio.to_thread(shell, place, limited, scheduler.address)
    assert ran.status == 2
    assert "r.jsonl: File too large" in ran.err
    lines = (place / "r.jsonl").read_text().splitlines(keepends=True)
    assert 0 < len(lines) < 40
    assert all(line.endswith("\n") and json.loads(line)["outcome"] == "CORRECT" for line in lines)
    scheduler.forget()
    ran = await run("batch", place / "tasks.jsonl", "-o", place / "r.jsonl", "--json", "--address", scheduler.address)
    assert ran.json["requests"] == 40
    assert ran.json["skipped"] == len(lines)


async def test_requests_from_standard_input_or_a_pipe(scheduler: FakeFleet, place: Path) -> None:
    many = "".join(json.dumps({"id": f"r{number}", "kernel_code": "k"}) + "\n" for number in range(300))
    (place / "many.jsonl").write_text(many)
    for number, script in enumerate(
        ("cat many.jsonl | $K batch -", "$K batch - < many.jsonl", "$K batch <(cat many.jsonl)")
    ):
        scheduler.forget()
        ran = await asyncio.to_thread(shell, place, f"{script} --json -o r{number}", scheduler.address)
        assert ran.status == 0, ran.err
        assert ran.json["outcomes"] == {"CORRECT": 300}
        assert len((place / f"r{number}").read_text().splitlines()) == 300


@pytest.mark.parametrize("script", ["$K evaluate ref.py - < own.py", "$K evaluate ref.py <(cat own.py)"])
async def test_a_candidate_from_standard_input_or_a_pipe(scheduler: FakeFleet, place: Path, script: str) -> None:
    ran = await asyncio.to_thread(shell, place, script, scheduler.address)
    assert ran.status == 0, ran.err
    (message,) = [message for message in scheduler.messages if message.requests]
    assert message.requests[0].kernel_code == (place / "own.py").read_text()


async def test_a_slow_writer_holds_up_no_result(scheduler: FakeFleet, place: Path) -> None:
    """A result is written while the command waits for more input, and Ctrl-C still works."""
    os.mkfifo(place / "fifo")
    output = place / "r"
    async with started("batch", place / "fifo", "-o", output, "--address", scheduler.address) as process:
        writer = await asyncio.to_thread((place / "fifo").open, "wb", 0)
        writer.write(TASK.encode())
        await eventually(lambda: output.exists() and output.read_text().count("\n") == 1)
        process.send_signal(signal.SIGINT)
        ran = await finished(process)
        writer.close()
    assert ran.status == 130
    assert "run the same command to continue" in ran.err


@pytest.mark.parametrize(
    "arguments", [("batch", "fifo", "-o", "r"), ("evaluate", "ref.py", "fifo"), ("report", "fifo", "-o", "r")]
)
def test_a_fifo_without_a_writer_is_waited_for_and_said(place: Path, arguments: tuple[str, ...]) -> None:
    os.mkfifo(place / "fifo")
    with (place / "said").open("w+") as said:
        command = [sys.executable, "-m", "kerneldyno.cli", *arguments]
        with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=said) as process:
            try:
                wait_until(lambda: "waiting for another process to write to fifo" in (place / "said").read_text())
                process.send_signal(signal.SIGINT)
                assert process.wait(SECONDS) == 130
            finally:
                process.kill()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import torch\n\n\nclass ModelNew:\n    pass\n",
            "this is Python code, not JSON Lines; use `kerneldyno evaluate",
        ),
        ('"""A kernel."""\n\nfrom torch import nn\n', "this is Python code"),
        ('[{"id": "a"}]\n', "this is one JSON document, not JSON Lines"),
        ('{\n  "id": "a"\n}\n', "this is one JSON document, not JSON Lines"),
        ("id,kernel_code\na,k\n", "its first line is 'id,kernel_code'"),
        ("x\n" * 2000 + TASK, "its first line is 'x'"),
    ],
)
@pytest.mark.parametrize("way", ["tasks.jsonl", "-"])
def test_a_file_that_is_no_json_lines_is_refused_at_once(place: Path, text: str, said: str, way: str) -> None:
    (place / "tasks.jsonl").write_text(text)
    ran = shell(place, f"$K batch {way} -o r < tasks.jsonl")
    assert ran.status == 2
    assert said in ran.err
    assert ran.err.startswith(f"kerneldyno: {'standard input' if way == '-' else way}: ")
    assert not (place / "r").exists()
