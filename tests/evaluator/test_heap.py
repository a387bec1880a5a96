"""The heap of processes on the CPU device: the memory of a call does not depend on the process's earlier work."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap

import pytest

#: Earlier work of a process: nothing, large blocks that are freed, or blocks of which every second one is freed.
LIVES = {
    "new": "",
    "large outputs": "kept = [torch.ones(1 << 20) for _ in range(4)]; del kept",
    "holes": "kept = [torch.ones(3 << shift) for shift in range(8, 18) for _ in range(8)]; del kept[::2]",
}


SIZES = (1 << 20, 1 << 16, 1 << 10)
CALLS = 60


@functools.cache
def faults(life: str, *, alike: bool = True) -> dict[int, list[int]]:
    """Return the page faults of each call after some earlier work, by the number of elements of the output."""
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
    # The first call loads libraries that all others use.
    return {size: seen[at * CALLS + 1 : (at + 1) * CALLS] for at, size in enumerate(SIZES)}


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("numbers", SIZES[:2])
def test_large_outputs_are_new_pages_in_every_call_of_every_process(life: str, numbers: int) -> None:
    pages = numbers * 4 // 4096
    assert all(pages <= seen <= pages + 4 for seen in faults(life)[numbers])


@pytest.mark.parametrize("life", LIVES)
def test_small_outputs_are_faulted_in_once(life: str) -> None:
    assert faults(life)[SIZES[2]][-20:] == [0] * 20


def test_without_the_heap_settings_faults_depend_on_earlier_work() -> None:
    """Show that the effect which the two tests above exclude exists, so that they could fail."""
    seen = {life: tuple(faults(life, alike=False)[SIZES[0]]) for life in LIVES}
    assert len(set(seen.values())) > 1, seen
