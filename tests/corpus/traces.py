"""Traces that attacks could leave: files in shared places, and processes of the judge that judged them.

test_attacks.py and test_attacks_on_the_evaluator.py look for both after all of their attacks.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.corpus.judge_corpus import JOBS
from tests.evaluator.judge_harness import Judge, candidate, request
from tests.waiting import wait_until

#: Places where a candidate without walls could leave a file.
_SHARED = (*map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run")), Path.home())
_NOBODY = 65534
#: Number of processes of one runner or problem: the outer half of its warden, the warden, and the runner itself.
_PROCESSES = 3


def find_news() -> set[str]:
    """Return files in shared places that a candidate made: their owner is `nobody`, or attacks use such names."""
    return {str(path) for place in _SHARED if place.is_dir() for path in place.iterdir() if _is_a_candidates(path)}


def check_nothing_is_left(judge: Judge, before: set[str]) -> None:
    """Check that the judge still works, and that no process of a candidate and no file of one is left.

    What may be left is spare runners and the processes of problems, which are kept for a while.

    Args:
        judge: The judge of the attacks.
        before: What `find_news` returned before them.
    """
    result = judge.evaluate(request(candidate()))
    assert result["outcome"] == "CORRECT", result["message"]
    zygote = psutil.Process(judge.zygote.pid)

    def is_clean() -> bool:
        # Processes of references that were timed stay for some seconds, so more than one look is needed.
        expected = JOBS + judge.next_stats()["problem_processes"]
        return len(zygote.children(recursive=True)) <= _PROCESSES * expected

    wait_until(is_clean, "nothing but spare runners and problems")
    assert find_news() <= before


def _is_a_candidates(path: Path) -> bool:
    try:
        return "kerneldyno-escape" in path.name or path.lstat().st_uid == _NOBODY
    except OSError:  # other programs use these places as well, so a file may just have gone
        return False
