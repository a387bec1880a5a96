"""Which candidates of the corpora `make test` runs, and how many random examples: a sample. `.ci/run` runs all of them.

The sample of the corpora has one attack for each id of the threat model, and one in `SHARE` of the candidates that have
no id. The hash of its name decides whether a candidate is in it, so new candidates hardly change the rest of the sample.
Tests with the marker `long` are not in it. `examples` and `count` are for tests that try many random or similar cases:
a sample has fewer of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

#: One in so many of the candidates without an id.
SHARE = 9
#: What the name of an attack begins with.
_ID = re.compile(r"([A-Z]\d\d)_")
#: A sample has one in so many of hypothesis's examples.
_EXAMPLES_SHARE = 4

#: True if this run is a sample. tests/conftest.py sets it before it imports any test.
is_sample = False


def count(whole: int, sampled: int) -> int:
    """Return the number of cases of a test: `sampled` in a sample, otherwise `whole`."""
    return sampled if is_sample else whole


def examples(whole: int) -> int:
    """Return the number of hypothesis's examples for a property."""
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
