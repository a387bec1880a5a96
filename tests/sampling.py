"""The sample that `make test` runs: some candidates of the corpora and fewer random examples.

`.ci/run` runs a part of all tests that the commit decides: the sample, a quarter of the other candidates, and a half of
the tests with the marker `long`. So each is tried after a few commits, and a run can be repeated. `CORPUS=whole` runs
them all.

The sample of a test file of the corpora has one attack for each id of the threat model, and one in `SHARE` of the
candidates whose names do not begin with an id. The hash of its name decides whether a candidate is in the sample, so
new candidates hardly change the rest. Tests with the marker `long` are not in the sample. `examples` and `count` are
for tests that try many random or similar cases: a sample has fewer of them.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

#: The sample has one in this many of the candidates without an id.
SHARE = 9
#: The id of the threat model at the start of an attack's name.
_ID = re.compile(r"([A-Z]\d\d)_")
#: A sample has one in this many of hypothesis's examples.
_EXAMPLES_SHARE = 4

#: True if this run is a sample. tests/conftest.py sets it before it imports any test.
is_sample = False


def count(whole: int, sampled: int) -> int:
    """Return the number of cases that a test tries: `sampled` in a sample, otherwise `whole`."""
    return sampled if is_sample else whole


def examples(whole: int) -> int:
    """Return the number of examples that hypothesis tries for a property: `whole`, or fewer in a sample."""
    return count(whole, max(10, whole // _EXAMPLES_SHARE))


def sample(names: Iterable[str]) -> set[str]:
    """Return the names of candidates that are in the sample; at least one, unless there are none."""
    ordered = sorted(names, key=_digest)
    chosen = {name for name in ordered if _ID.match(name) is None and _digest(name) % SHARE == 0}
    first: dict[str, str] = {}
    for name in ordered:
        if found := _ID.match(name):
            first.setdefault(found[1], name)
    return chosen | set(first.values()) or set(ordered[:1])


def part(names: Iterable[str]) -> set[str]:
    """Return the sample and a quarter of the other names, which depends on the commit that is checked out."""
    ordered = list(names)
    return sample(ordered) | {name for name in ordered if has_its_turn(name, 4)}


def has_its_turn(name: str, share: int) -> bool:
    """Return True for one in `share` of all names; the commit that is checked out decides for which."""
    return _digest(f"{_commit()} {name}") % share == 0


@cache
def _commit() -> str:
    """Return the commit of this folder; "" without git."""
    try:
        # In a container the folder may belong to somebody else.
        command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.sha3_256(name.encode()).digest()[:8])
