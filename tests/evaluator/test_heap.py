"""The heap of the CPU device's processes: what a call gets does not depend on what the process did before."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

#: What processes have done before they are timed: nothing, or large blocks by turns, of which every other one is left.
LIVES = {
    "new": "",
    "large outputs": "kept = [torch.ones(1 << 20) for _ in range(4)]; del kept",
    "holes": "kept = [torch.ones(3 << shift) for shift in range(8, 18) for _ in range(8)]; del kept[::2]",
}


def faults(life: str, numbers: int, *, alike: bool = True) -> list[int]:
    """Pages that are faulted in by calls whose output has so many numbers, after a life."""
    program = f"""
        import resource
        import torch
        from kerneldyno.evaluator.devices import heap

        torch.set_num_threads(1)
        {"heap.divide()" if alike else ""}
        {LIVES[life]}
        {"heap.make_alike()" if alike else ""}
        x = torch.ones({numbers})
        for _ in range(60):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            y = torch.relu(x)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            del y
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=True
    )
    return [int(line) for line in done.stdout.split()][1:]  # the first call loads what all others use


@pytest.mark.parametrize("numbers", [1 << 20, 1 << 16])
def test_large_outputs_are_new_pages_in_every_call_of_every_process(numbers: int) -> None:
    pages = numbers * 4 // 4096
    for life in LIVES:
        assert all(pages <= seen <= pages + 4 for seen in faults(life, numbers)), life


def test_small_outputs_are_faulted_in_once() -> None:
    for life in LIVES:
        assert faults(life, 1 << 10)[-20:] == [0] * 20, life


def test_without_that_it_depends_on_what_was_before() -> None:
    """What the two tests above are for, and that they could fail."""
    seen = {life: tuple(faults(life, 1 << 20, alike=False)) for life in LIVES}
    assert len(set(seen.values())) > 1, seen
