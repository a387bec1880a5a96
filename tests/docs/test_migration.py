"""The pages for users of KernelGym and KernelBench name only fields that exist, and all that the gateway knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerneldyno.gateway import kernelgym
from kerneldyno.rewards.presets import PRESETS
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from tests.docs.docs_pages import ROOT

pytestmark = pytest.mark.pure

KERNELGYM = ROOT / "docs/migrating-from-kernelgym.md"
KERNELBENCH = ROOT / "docs/migrating-from-kernelbench.md"
REQUEST = {field.name for field in EvalRequest.DESCRIPTOR.fields}
RESULT = {field.name for field in EvalResult.DESCRIPTOR.fields}


def rows(page: Path, title: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    section = re.split(r"\n## ", page.read_text().split(f"\n## {title}\n")[1])[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return lines[2:]


def named(cell: str) -> set[str]:
    """Return the names in backticks that could be fields."""
    return set(re.findall(r"`([a-z_]+)`", cell))


def test_every_field_of_a_task_that_the_gateway_knows_has_its_row() -> None:
    there = set().union(*(named(cells[0]) for cells in rows(KERNELGYM, "Requests"))) | {"resources"}
    known = {*kernelgym._SAME, *kernelgym._WITHOUT_EFFECT, *kernelgym._TRANSLATED}
    assert there == known | {"resources"}


def test_fields_of_requests_exist() -> None:
    for page, title, column in ((KERNELGYM, "Requests", 2), (KERNELBENCH, "Arguments of `eval_kernel_against_ref`", 1)):
        first = [named(cells[column]) for cells in rows(page, title)]
        values = {"cuda", "torch", "triton", "kernelbench", "kernel_simple"}
        assert set().union(*first) - values <= REQUEST


def test_fields_of_results_exist() -> None:
    parts = {"profile", "environment", "correctness", "candidate_timing", "reference_timing", "candidate_end_to_end"}
    assert parts <= RESULT
    for page, title in ((KERNELGYM, "Responses"), (KERNELBENCH, "`KernelExecResult`")):
        found = set().union(*(named(cells[1]) for cells in rows(page, title)))
        assert found - {"kernelgym_coverage"} <= RESULT
    profile = EvalResult.DESCRIPTOR.fields_by_name["profile"].message_type
    assert profile is not None
    assert "kernelgym_coverage" in {field.name for field in profile.fields}


def test_outcomes_and_codes_exist() -> None:
    words = {word for cells in rows(KERNELGYM, "Outcomes") for word in re.findall(r"`([A-Z_]+)`", cells[1])}
    assert words == {*EvalResult.Outcome.keys()} - {"OUTCOME_UNSPECIFIED"}
    codes = {word for cells in rows(KERNELGYM, "Error codes") for word in re.findall(r"`([A-Z_]+)`", cells[0])}
    assert {*kernelgym._ERROR_CODES.values()} <= codes


def test_presets_exist() -> None:
    said = {word for cells in rows(KERNELGYM, "Rewards") for word in re.findall(r"preset `(\w+)`", cells[1])}
    assert said
    assert said <= set(PRESETS)
