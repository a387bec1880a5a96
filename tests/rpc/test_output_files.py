"""Outputs that one process writes at a time: which process gets the lock, and when the lock ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kerneldyno.rpc.output_files import OutputLock, OutputLockedError

#: Takes the lock again and again. While it has the lock it creates a file, which no other process may have created.
CONTENDER = """
import os, sys, time
from pathlib import Path
from kerneldyno.rpc.output_files import OutputLock, OutputLockedError
output, taken = Path(sys.argv[1]), 0
while taken < 50:
    try:
        with OutputLock(output):
            os.close(os.open(f"{output}.held", os.O_CREAT | os.O_EXCL))
            os.unlink(f"{output}.held")
            taken += 1
    except OutputLockedError:
        time.sleep(0.001)
"""
HOLDER = """
import sys, time
from pathlib import Path
from kerneldyno.rpc.output_files import OutputLock
with OutputLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_at_a_time_however_many_want_it(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    contenders = [subprocess.Popen([sys.executable, "-c", CONTENDER, str(output)]) for _ in range(4)]
    assert [contender.wait(120) for contender in contenders] == [0] * 4
    assert not list(tmp_path.iterdir())


def test_it_ends_with_its_process_and_names_it_until_then(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(output)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(OutputLockedError, match=rf"process {holder.pid} on .*, since 20.*: -c {output}"):
            OutputLock(output)
        holder.send_signal(signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    assert left.name == ".r.jsonl.lock"
    with OutputLock(output):
        assert f'"pid": {os.getpid()}' in left.read_text()
        with pytest.raises(OutputLockedError, match=f"process {os.getpid()} "):
            OutputLock(output)
    assert not left.exists()


def test_a_place_that_cannot_be_written_names_the_output(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        OutputLock(tmp_path / "no" / "r.jsonl")
    assert caught.value.filename == str(tmp_path / "no" / "r.jsonl")
