"""The library that times driver calls: what it records of a program and its forks, with another node in place of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import driver_calls

#: Opens, maps and closes the node, also in two forks, of which one is killed.
PROGRAM = """
import fcntl, mmap, os, signal, termios

def use():
    node = os.open("/dev/zero", os.O_RDWR)
    mmap.mmap(node, 4096)
    try:
        fcntl.ioctl(node, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        pass
    os.close(node)

use()
print(os.getpid(), flush=True)
for how in ("exit", "kill"):
    if os.fork() == 0:
        use()
        os._exit(0) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver_calls.build(tmp_path_factory.mktemp("library"), "/dev/zero")


def run(library: Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **driver_calls.environment(library, folder), **more}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


def test_calls_of_a_program_and_its_forks_are_recorded(library: Path, tmp_path: Path) -> None:
    ended = run(library, tmp_path)
    assert ended.returncode == 0, ended.stderr
    recording = driver_calls.Recording(tmp_path, int(ended.stdout))
    calls = recording.since(0)
    assert len(calls) == len(recording)
    assert {call.process for call in calls} == {0, 1, 2}
    for process in range(3):
        names = [call.name.split()[0] for call in calls if call.process == process]
        assert names == ["open", "mmap", "RM", "close"], names
    assert all(call.took > 0 for call in calls)
    assert [call.begin for call in calls] == sorted(call.begin for call in calls)
    assert recording.since(len(recording)) == []
    assert recording.processes == 2
    rows = {row.name: row.times for row in driver_calls.totals(calls)}
    assert rows["open of other"] == rows["close of other"] == 3


def test_a_hidden_node_cannot_be_opened(library: Path, tmp_path: Path) -> None:
    nodes = driver_calls.build(tmp_path, "/dev/fd/")
    opened = "import os\nos.open('/dev/fd/{}', os.O_RDONLY)"
    for number, status in ((0, 0), (1, 1), (12, 1)):
        environment = {**os.environ, "LD_PRELOAD": str(nodes), "HIDDEN_GPUS": "1,12"}
        command = [sys.executable, "-c", opened.format(number)]
        assert subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode == status


def test_without_a_recording_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no calls of process 7"):
        driver_calls.Recording(tmp_path, 7)
