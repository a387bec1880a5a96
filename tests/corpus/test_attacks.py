"""Attacks on the time in corpus/attacks, one test for each: none may gain anything, and none may leave anything behind.

Attacks whose times are not compared are in `test_attacks_on_answers.py` (S) and `test_attacks_on_the_evaluator.py` (E).
"""

from __future__ import annotations

import ast
import importlib.util
import re

import pytest

from kerneldyno.evaluator import toolkits
from kerneldyno.evaluator.devices import timed_loops
from kerneldyno.evaluator.judge.comparison import compare
from kerneldyno.evaluator.judge.runners import handle
from tests.corpus.judge_corpus import Entry, Run, has_time_compared, select
from tests.corpus.traces import check_nothing_is_left, find_news

pytestmark = [pytest.mark.alone, pytest.mark.corpus]


@pytest.fixture(scope="module", autouse=True)
def before() -> set[str]:
    """Files in shared places before any attack ran."""
    return find_news()


@pytest.mark.parametrize(
    "entry",
    [entry for entry in select("attacks") if has_time_compared(entry) or not entry.name.startswith(("E", "R", "S"))],
    ids=lambda entry: entry.name,
)
def test_attack_gains_nothing(run: Run, entry: Entry) -> None:
    assert run.shortfall(entry) is None, run.shown(entry)


def test_what_attacks_look_for_in_the_timed_loops_is_there() -> None:
    """An attack that does not find these names does nothing, so it gains nothing; for a while, five attacks did so."""
    for loop in (timed_loops.run_burst, timed_loops.run_paced):
        assert {"station", "plan", "step"} <= set(loop.__code__.co_varnames)
    assert "watch" in timed_loops.run_burst.__code__.co_varnames
    assert {"sets", "slots"} <= set(timed_loops.Plan.__dataclass_fields__)


def test_what_attacks_name_of_the_evaluator_is_there() -> None:
    """An attack may use a module or an error of the evaluator only if it exists, and otherwise goes on quietly.

    After a renaming such an attack would test nothing.
    """
    named: set[tuple[str, str]] = set()
    for entry in select("attacks"):
        for node in ast.walk(ast.parse(entry.source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kerneldyno."):
                named |= {(str(node.module), alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                named |= {(alias.name, "") for alias in node.names if alias.name.startswith("kerneldyno.")}
            elif isinstance(node, ast.Constant) and re.fullmatch(r"kerneldyno(\.\w+)+", str(node.value)):
                named.add((node.value, ""))
    assert len(named) > 10
    for module, attribute in named:
        found = importlib.import_module(module)
        assert not attribute or hasattr(found, attribute) or importlib.util.find_spec(f"{module}.{attribute}"), module
    assert {"compare", "_compare_leaf", "difference"} <= set(vars(compare))  # S15
    assert hasattr(handle, "RunnerStartError")  # E18
    assert hasattr(toolkits, "ReferenceFailure")


def test_nothing_is_left(run: Run, before: set[str]) -> None:
    check_nothing_is_left(run.judge, before)
