"""The heap of the CPU device's processes: what a call gets does not depend on what the process did before."""

from __future__ import annotations

import functools
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


SIZES = (1 << 20, 1 << 16, 1 << 10)
CALLS = 60


@functools.cache
def faults(life: str, *, alike: bool = True) -> dict[int, list[int]]:
    """Pages that are faulted in by calls, by how many numbers their output has, after a life."""
    program = f"""
        import resource
        import torch
        from kerneldyno.evaluator.devices import heap

        torch.set_num_threads(1)
        {"heap.divide()" if alike else ""}
        {LIVES[life]}
        for size in {SIZES}:
            x = torch.ones(size)
            {"heap.make_alike()" if alike else ""}
            for _ in range({CALLS}):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                y = torch.relu(x)
                print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
                del y
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=True
    )
    seen = [int(line) for line in done.stdout.split()]
    # The first call loads what all others use.
    return {size: seen[at * CALLS + 1 : (at + 1) * CALLS] for at, size in enumerate(SIZES)}


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("numbers", SIZES[:2])
def test_large_outputs_are_new_pages_in_every_call_of_every_process(life: str, numbers: int) -> None:
    pages = numbers * 4 // 4096
    assert all(pages <= seen <= pages + 4 for seen in faults(life)[numbers])


@pytest.mark.parametrize("life", LIVES)
def test_small_outputs_are_faulted_in_once(life: str) -> None:
    assert faults(life)[SIZES[2]][-20:] == [0] * 20


def test_without_that_it_depends_on_what_was_before() -> None:
    """What the two tests above are for, and that they could fail."""
    seen = {life: tuple(faults(life, alike=False)[SIZES[0]]) for life in LIVES}
    assert len(set(seen.values())) > 1, seen
