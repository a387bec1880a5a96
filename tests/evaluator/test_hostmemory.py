"""The host's memory: how much a process may use, and a limit beyond which it gets an error and is not killed."""

from __future__ import annotations

import contextlib
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


@pytest.mark.parametrize(("limit", "found"), [("max", 200 << 10), ("81920", 80 << 10), ("1000000", 200 << 10)])
def test_a_container_has_what_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, found: int
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:        200 kB\nMemAvailable:    100 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(hostmemory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(hostmemory, "_CGROUP", tmp_path)
    assert hostmemory.total() == found


def test_all_there_is_is_what_the_kernel_says() -> None:
    assert 0 < hostmemory.total() <= psutil.virtual_memory().total


def test_a_peak_is_that_of_the_body_and_not_of_an_earlier_time() -> None:
    bytearray(400 << 20)
    peaks = []
    for mib in (200, 50):
        with hostmemory.measured() as peak:
            bytearray(mib << 20)
        assert peak.nbytes is not None
        peaks.append(peak.nbytes >> 20)
    assert peaks == [pytest.approx(200, abs=20), pytest.approx(50, abs=20)]


def test_a_peak_is_known_after_a_failure_as_well() -> None:
    with contextlib.suppress(ZeroDivisionError), hostmemory.measured() as peak:
        bytearray(200 << 20)
        raise ZeroDivisionError
    assert peak.nbytes is not None
    assert peak.nbytes >> 20 == pytest.approx(200, abs=20)


@pytest.mark.parametrize(("more", "known"), [(0, False), (300, True)])
def test_where_the_peak_cannot_start_anew_only_a_higher_one_counts(
    monkeypatch: pytest.MonkeyPatch, more: int, known: bool
) -> None:
    monkeypatch.setattr(hostmemory.proc, "restart_peak", lambda: None)
    bytearray(400 << 20)
    with hostmemory.measured() as peak:
        bytearray((100 + more + more) << 20)
    assert (peak.nbytes is not None) is known


def test_who_asks_for_more_gets_an_error_and_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"]), done.stderr
