"""The contained process in which benchmarks run attacks: it returns an answer, and its effects stay inside.

Each test starts a new interpreter, because `Contained` forks, and a process that has imported gRPC, as the tests'
process has, must not fork.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

pytestmark = pytest.mark.alone

CONTAIN = """
import json, os, sys
from benchmarks.contained import Contained

def function():
    {body}

contained = Contained(function, {seconds})
while (ended := contained.poll()) is None:
    pass
print(json.dumps([ended.answer, ended.how, ended.log]))
"""


def fresh(source: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", source]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def run(body: str, seconds: float = 60) -> tuple[Any, str, str]:
    """Run a contained function with this body. Return its answer, how it ended, and its log."""
    done = fresh(CONTAIN.format(body=body, seconds=seconds))
    assert done.returncode == 0, done.stderr
    answer, how, log = json.loads(done.stdout)
    return answer, how, log


def test_an_answer_comes_back() -> None:
    assert run("return {'uid': os.getuid()}") == ({"uid": 65534}, "answered", "")


def test_nothing_outside_can_be_written(tmp_path: Path) -> None:
    answer, how, _ = run(f"open({str(tmp_path / 'escaped')!r}, 'w'); return 'written'")
    assert (answer, how) == (None, "exited with status 70")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "how"), [("os._exit(3)", "exited with status 3"), ("os.abort()", "killed by signal 6")]
)
def test_how_it_ended_is_told(body: str, how: str) -> None:
    assert run(body)[1] == how


def test_what_hangs_is_killed() -> None:
    assert run("os.read(os.pipe()[0], 1)", 0.5)[1] == "hung"


def test_a_process_with_grpc_does_not_fork() -> None:
    done = fresh("import grpc; from benchmarks.contained import Contained; Contained(int, 1)")
    assert done.returncode == 1
    assert "this process has imported gRPC" in done.stderr


@pytest.mark.parametrize("module", ["contained", "inprocess", "attacks"])
def test_benchmarks_that_fork_are_imported_without_grpc(module: str) -> None:
    done = fresh(f"import sys; import benchmarks.{module}; print('grpc' in sys.modules)")
    assert (done.stdout.strip(), done.stderr) == ("False", "")
