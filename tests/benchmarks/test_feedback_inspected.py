"""Broken programs that only tools see (benchmarks/feedback_inspected.py): what is told about them, and what repairs them."""

from __future__ import annotations

import pytest

from benchmarks.feedback_inspected import (
    FIRST_CALL,
    LIMITS,
    MEMORY,
    InspectedCase,
    as_inspected,
    inspected_cases,
    is_repaired,
    right_outputs,
)
from benchmarks.feedback_policy import answer, read
from benchmarks.feedback_variants import VARIANTS
from kerneldyno.client import EvalResult
from kerneldyno.v1.reward_service_pb2 import Extraction
from tests.benchmarks.test_feedback_policy import chat

pytestmark = pytest.mark.pure

CASES = [case for case in inspected_cases() if isinstance(case, InspectedCase)]
FOUND = Extraction(method=Extraction.METHOD_FENCED_ENTRY_POINT)


def told(case: InspectedCase, variant: str = "default", source: str = "") -> str:
    return VARIANTS[variant](as_inspected(case, source or case.source, right_outputs()), FOUND)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_text_is_enough_for_the_repair(case: InspectedCase) -> None:
    broken = as_inspected(case, case.source, right_outputs())
    assert not is_repaired(case, case.source, broken)
    messages = chat(case, told(case), correct=broken.outcome == EvalResult.CORRECT)
    for seed in range(5):
        repaired = answer(messages, seed).removeprefix("```python\n").removesuffix("```\n")
        assert is_repaired(case, repaired, as_inspected(case, repaired, right_outputs()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tools_are_silent_about_the_right_program_and_about_wrong_outputs(case: InspectedCase) -> None:
    right, wrong = right_outputs(), EvalResult(outcome=EvalResult.INCORRECT)
    assert as_inspected(case, case.right, right) is right
    assert as_inspected(case, case.source, wrong) is wrong
    assert is_repaired(case, case.right, right)
    assert not is_repaired(case, case.right, wrong)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_report_names_this_program(case: InspectedCase) -> None:
    text = told(case)
    if case.family == MEMORY and case.report != FIRST_CALL:
        (line,) = read(text).places
        assert case.at in case.source.splitlines()[line - 1]
        moved = told(case, source=f"# a comment\n{case.source}")
        assert read(moved).places == {line + 1}
        assert f"in {case.kernel} at candidate.py:{line}" in text
    elif case.family == LIMITS:
        assert text.startswith("CORRECT")
        assert f"Your slowest kernel {case.kernel} by hardware counters" in text


@pytest.mark.parametrize(
    ("variant", "family", "part"),
    [
        ("without memory", MEMORY, "candidate.py:"),
        ("without memory", MEMORY, "Memory error"),
        ("without call", MEMORY, "first call"),
        ("without counters", LIMITS, "hardware counters"),
    ],
)
def test_a_variant_lacks_its_part_and_nothing_else(variant: str, family: str, part: str) -> None:
    without = [(told(case), told(case, variant)) for case in CASES if case.family == family]
    assert any(part in whole for whole, _ in without)
    assert not any(part in less for _, less in without)
    others = [case for case in CASES if case.family != family]
    assert [told(case) for case in others] == [told(case, variant) for case in others]
