"""Hostile references (R): none reaches anything outside its own problem, and each costs its own evaluations only.

Beside each, another problem is judged on the same judge: a right candidate and a wrong one must get their verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kerneldyno.cli import corpus
from tests.corpus.judge_corpus import JOBS, SECRETS, Entry, Run, select
from tests.corpus.traces import check_nothing_is_left, find_news
from tests.evaluator.judge_harness import Judge

pytestmark = [pytest.mark.slow, pytest.mark.corpus]


HOSTILE = [entry for entry in select("attacks") if entry.answer is not None]


def neighbours(entry: Entry) -> tuple[Entry, Entry]:
    """Return candidates for the problem whose place a hostile reference takes: a right one, and a wrong one."""
    assert entry.answer is not None
    right = corpus.read(entry.answer)
    wrong = right.source.replace("silu(x)", "silu(x) * 1.01")
    assert wrong != right.source
    untimed = {**right.request, "run_performance": False}
    return (
        replace(right, name=f"right_beside_{entry.name}", request=untimed),
        replace(right, name=f"wrong_beside_{entry.name}", request=untimed, source=wrong, outcomes=("INCORRECT",)),
    )


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A run of the references that were selected, on a judge that gives up soon on those that hang."""
    items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    chosen = [item.callspec.params["entry"] for item in items if hasattr(item, "callspec")]
    with Judge("--lanes", str(JOBS), "--reference-seconds", "10", environment=SECRETS) as judge:
        assert judge.ready["op"] == "ready", judge.ready
        yield Run(judge, [each for entry in chosen for each in (entry, *neighbours(entry))])


@pytest.fixture(scope="module", autouse=True)
def before() -> set[str]:
    """Files in shared places before any attack ran."""
    return find_news()


@pytest.mark.parametrize("entry", HOSTILE, ids=lambda entry: entry.name)
def test_a_hostile_reference_harms_only_its_own_problem(run: Run, entry: Entry) -> None:
    for each in (entry, *neighbours(entry)):
        assert run.shortfall(each) is None, run.shown(each)


def test_nothing_is_left_in_the_end(run: Run, before: set[str]) -> None:
    check_nothing_is_left(run.judge, before)
