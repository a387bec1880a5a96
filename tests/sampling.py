"""What `make test` runs of the corpora, and how often it repeats: a sample, the same everywhere. `.ci/run` runs all.

The sample of the corpora has one attack for each id of the threat model, and one in `SHARE` of the candidates that have no
id. The hash of its name decides whether a candidate is in it: a new one hardly changes which of the others are. `examples`
and `count` are for tests that try many random cases, or many that are alike: a sample has fewer of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

#: One in so many of the candidates without an id.
SHARE = 9
#: What the name of an attack begins with.
_ID = re.compile(r"([A-Z]\d\d)_")
#: Of so many examples of hypothesis, a sample has one.
_EXAMPLES_SHARE = 4

#: Whether this run is a sample; tests/conftest.py sets it before it imports any test.
is_sample = False


def count(whole: int, sampled: int) -> int:
    """Return how many a test tries: `whole`, and `sampled` in a sample."""
    return sampled if is_sample else whole


def examples(whole: int) -> int:
    """Return how many examples hypothesis tries of a property."""
    return count(whole, max(10, whole // _EXAMPLES_SHARE))


def sample(names: Iterable[str]) -> set[str]:
    """Return those of these names of candidates that are in the sample; at least one."""
    ordered = sorted(names, key=_digest)
    chosen = {name for name in ordered if _ID.match(name) is None and _digest(name) % SHARE == 0}
    first: dict[str, str] = {}
    for name in ordered:
        if found := _ID.match(name):
            first.setdefault(found[1], name)
    return chosen | set(first.values()) or set(ordered[:1])


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.sha3_256(name.encode()).digest()[:8])
