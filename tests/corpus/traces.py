"""What attacks could leave behind: files in shared places, and processes of the judge that they ran on.

The tests of attacks look for both when all of their attacks are over.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.corpus.judge_corpus import JOBS
from tests.evaluator.judge_harness import Judge

#: Where a candidate without walls could leave something: `find_news` looks for what it would be.
_SHARED = (*map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run")), Path.home())
_NOBODY = 65534
#: A spare runner and one that was timed have as many each: a warden's outer half, the warden, and the runner itself.
_PROCESSES = 3


def find_news() -> set[str]:
    """Return files in shared places that a candidate made: nobody's own, or named as the attacks name theirs."""
    return {str(path) for place in _SHARED if place.is_dir() for path in place.iterdir() if _is_a_candidates(path)}


def has_only_runners(judge: Judge, references: int) -> bool:
    """Return whether no more lives than the spare runners of a judge, and so many that keep a reference."""
    family = psutil.Process(judge.zygote.pid).children(recursive=True)
    return len(family) <= _PROCESSES * (JOBS + references)


def _is_a_candidates(path: Path) -> bool:
    try:
        return "kerneldyno-escape" in path.name or path.lstat().st_uid == _NOBODY
    except OSError:  # others use these places as well
        return False
