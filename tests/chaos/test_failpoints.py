"""Tests of failpoints: they do only what the environment asks for, and every declared place exists in the scheduler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import timeit
from pathlib import Path

import pytest

from kerneldyno.scheduler import failpoints

pytestmark = pytest.mark.alone

SOURCES = Path(failpoints.__file__).parent


def run(armed: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run `program` in a process with the failpoints `armed`."""
    return subprocess.run(
        [sys.executable, "-c", f"from kerneldyno.scheduler.failpoints import failpoint\n{program}"],
        env={**os.environ, failpoints.ENVIRONMENT: armed},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_kill_is_a_sigkill_at_that_place_and_not_at_another() -> None:
    done = run("after_commit=kill", 'failpoint("before_commit"); print("alive", flush=True); failpoint("after_commit")')
    assert (done.returncode, done.stdout) == (-9, "alive\n")


def test_the_nth_pass_and_only_that_one() -> None:
    program = """
for number in range(1, 6):
    try:
        failpoint("during_commit")
    except OSError as error:
        print(number, error.errno)
"""
    assert run("during_commit=error#3", program).stdout == "3 5\n"


def test_probabilities_repeat_with_their_seed() -> None:
    program = """
for number in range(1000):
    try:
        failpoint("after_commit")
    except OSError:
        print(number)
"""
    first, again, other = (run(f"seed={seed},after_commit=error@0.1", program).stdout for seed in (7, 7, 8))
    assert first == again != other
    assert 50 < len(first.split()) < 200


def test_a_sleep_blocks() -> None:
    program = 'import time; t = time.monotonic(); failpoint("after_commit"); print(time.monotonic() - t > 0.19)'
    assert run("after_commit=sleep:0.2", program).stdout == "True\n"


@pytest.mark.parametrize(
    "text", ["nowhere=kill", "after_commit=explode", "after_commit", "after_commit=kill@x", "seed=x"]
)
def test_what_is_not_understood_stops_the_start(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        failpoints.parse(text)
    done = run(text, "")
    assert done.returncode != 0
    assert failpoints.ENVIRONMENT in done.stderr


def test_a_place_that_is_off_costs_next_to_nothing() -> None:
    assert not os.environ.get(failpoints.ENVIRONMENT)
    passes = 200_000
    seconds = min(timeit.repeat(lambda: failpoints.failpoint("after_commit"), number=passes, repeat=3))
    assert seconds / passes < 2e-6, "a look at an empty dict"


def test_every_place_is_in_the_scheduler_and_no_other() -> None:
    text = "\n".join(file.read_text() for file in SOURCES.rglob("*.py") if file.name != "failpoints.py")
    used = [re.sub(r"\{\w+\}", r"\\w+", name) for name in re.findall(r'failpoint\(f?"([\w{}]+)"\)', text)]
    for place in failpoints.PLACES:
        assert any(re.fullmatch(name, place) for name in used), f"no failpoint({place!r}) in the scheduler"
    for name in used:
        assert any(re.fullmatch(name, place) for place in failpoints.PLACES), f"{name} is not declared"
