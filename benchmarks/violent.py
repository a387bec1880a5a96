"""Make variants of the candidates in `examples/problems`, in random order; a fifth of them crash, hang or corrupt.

An evaluator must survive such candidates a thousand times a day. They are for sandboxed runners only.
"""

from __future__ import annotations

import itertools
import random

from benchmarks.batches import Candidate
from examples.demo import PROBLEMS, read_table

#: Outcomes of candidates that end their process or have to be killed.
_VIOLENT = {"RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY"}


def violent(count: int, seed: int, *, tiny: bool) -> list[Candidate]:
    """Make `count` candidates; with `tiny`, leave out those that need a GPU."""
    table = [row for row in read_table() if row.backend != "cuda" and not (tiny and row.needs_gpu)]
    wild = itertools.cycle([row for row in table if set(row.outcomes) & _VIOLENT])
    others = itertools.cycle([row for row in table if not set(row.outcomes) & _VIOLENT])
    rows = [next(wild) if number % 5 == 0 else next(others) for number in range(count)]
    random.Random(seed).shuffle(rows)
    return [
        Candidate(
            name=f"{number:03d}/{row.name}",
            kind="violent" if set(row.outcomes) & _VIOLENT else "other",
            problem=row.problem,
            reference=(PROBLEMS / row.problem / "reference.py").read_text(),
            source=f"{(PROBLEMS / f'{row.name}.py').read_text()}\n# variant {number}\n",
            outcomes=tuple(row.outcomes),
            backend=row.backend,
            findings=frozenset(row.findings),
            timeouts=row.timeouts,
        )
        for number, row in enumerate(rows)
    ]
