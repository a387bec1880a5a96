"""The host's memory: how much a process may use, and a limit beyond which it gets an error and is not killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kerneldyno.evaluator.devices import hostmemory

pytestmark = pytest.mark.alone

LIMITED = """
import torch
from kerneldyno.evaluator.devices import hostmemory

torch.ones(8)
hostmemory.limit_own(256 << 20)
kept = torch.ones(16 << 20)  # 64 MiB
try:
    torch.ones(128 << 20)  # 512 MiB
except RuntimeError as error:
    print("can't allocate memory" in str(error))
print(float(kept.sum()) == 16 << 20)
"""


def test_what_is_available_is_what_the_kernel_says() -> None:
    found = hostmemory.available()
    assert 0 < found <= psutil.virtual_memory().total
    assert found == pytest.approx(psutil.virtual_memory().available, rel=0.3)


@pytest.mark.parametrize(
    ("limit", "used", "found"),
    [("max", "5", 100 << 10), ("81920", "20480", 60 << 10), ("1000000", "0", 100 << 10), ("10", "20", 0)],
)
def test_no_more_than_a_container_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, used: str, found: int
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:        200 kB\nMemAvailable:    100 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    monkeypatch.setattr(hostmemory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(hostmemory, "_CGROUP", tmp_path)
    assert hostmemory.available() == found


def test_who_asks_for_more_gets_an_error_and_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"]), done.stderr
