"""The code of kernels at the judge: what a runner may say of it, and that no verdict depends on it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kerneldyno.evaluator.judge.checks import code
from kerneldyno.evaluator.judge.checks.candidate import Candidate
from kerneldyno.evaluator.judge.results import verdict
from kerneldyno.evaluator.judge.results.record import Finished, Record
from kerneldyno.evaluator.judge.runners.handle import RunnerGarbled, RunnerGone
from kerneldyno.v1 import evaluation_pb2 as pb
from tests.evaluator import judge_harness

pytestmark = pytest.mark.pure

KERNEL: dict[str, Any] = {
    "name": "add",
    "origin": "native.so",
    "registers": 40,
    "spill_bytes": 8,
    "stack_bytes": 16,
    "shared_memory_bytes": 1024,
    "warps": 4,
    "ptx": "",
    "sass": "",
    "truncated": False,
}
WRONG: dict[str, list[Any]] = {
    "registers": [-1, 1 << 31, 1.0, True, None, "1", float("nan")],
    "name": [None, 1, b"", ["add"]],
    "truncated": [None, 0, ""],
}


class Listed:
    """A candidate whose runner gives this answer when it is asked for its kernels' code."""

    def __init__(self, answer: Any, listing: str = "CODE_LISTING_NONE", *, overdue: bool = False) -> None:
        self.spec = judge_harness.spec("", code_listing=listing)
        self.record = Record()
        self.overdue = overdue
        self.asked: list[tuple[bool, bool]] = []
        self._answer = answer

    async def listing(self, *, ptx: bool, sass: bool) -> Any:
        self.asked.append((ptx, sass))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def kernels(self) -> list[pb.KernelCode]:
        return asyncio.run(code.listing(cast(Candidate, self)))


def listed(*kernels: dict[str, Any], failed: str = "") -> Listed:
    return Listed({"kernels": list(kernels), "failed": failed})


def test_what_a_runner_says_of_kernels_comes_back() -> None:
    (kernel,) = listed(KERNEL | {"ptx": ".entry add\n{\tret; }\x1b[31m"}).kernels()
    assert kernel == pb.KernelCode(
        name="add",
        origin="native.so",
        registers=40,
        spill_bytes=8,
        stack_bytes=16,
        shared_memory_bytes=1024,
        warps=4,
        ptx=".entry add\n{\tret; }[31m",
    )
    assert listed().kernels() == []
    told = verdict.correct(pb.CorrectnessReport(), 3, [], code=[kernel])
    assert list(told.kernel_code) == [kernel]


@pytest.mark.parametrize(
    ("listing", "asked"),
    [
        ("CODE_LISTING_UNSPECIFIED", (False, False)),
        ("CODE_LISTING_NONE", (False, False)),
        ("CODE_LISTING_PTX", (True, False)),
        ("CODE_LISTING_SASS", (False, True)),
        ("CODE_LISTING_ALL", (True, True)),
    ],
)
def test_the_listings_that_the_request_wants_are_asked_for(listing: str, asked: tuple[bool, bool]) -> None:
    candidate = Listed({"kernels": [], "failed": ""}, listing)
    candidate.kernels()
    assert candidate.asked == [asked]


def test_more_than_there_can_be_is_cut() -> None:
    long = "x" * (1 << 17)
    kernels = listed(*[KERNEL | {"name": long, "origin": long, "ptx": long, "sass": long}] * 60).kernels()
    assert len(kernels) == 50
    kernel = kernels[0]
    assert [len(text) for text in (kernel.name, kernel.origin, kernel.ptx, kernel.sass)] == [200, 200, 1 << 16, 1 << 16]
    assert kernel.truncated


@pytest.mark.parametrize("texts", [{"name": "\ud800\x00\x9b"}, {"sass": "\ud800 EXIT ;"}])
def test_any_text_can_be_sent(texts: dict[str, str]) -> None:
    (found,) = listed(KERNEL | texts).kernels()
    assert pb.KernelCode.FromString(found.SerializeToString()) == found


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        [],
        {"kernels": []},
        {"kernels": {}, "failed": ""},
        {"kernels": [None], "failed": ""},
        {"kernels": [{}], "failed": ""},
        *({"kernels": [{**KERNEL, name: value}], "failed": ""} for name, values in WRONG.items() for value in values),
    ],
)
def test_what_is_no_listing_came_from_no_harness(answer: Any) -> None:
    with pytest.raises(RunnerGarbled):
        Listed(answer).kernels()


def test_a_listing_that_is_not_complete_is_told_with_the_reason() -> None:
    candidate = listed(KERNEL, failed="cuobjdump was not found\x07" + "!" * 5000)
    assert len(candidate.kernels()) == 1
    (finding,) = candidate.record.findings
    assert (finding.id, finding.severity) == ("D22", pb.Finding.SEVERITY_INFO)
    assert "cuobjdump was not found!!!" in finding.evidence
    assert len(finding.evidence) < 600


@pytest.mark.parametrize("end", [RunnerGone(), Finished(verdict.late("correctness", 1.0, 0.0))])
def test_a_candidate_that_ends_while_it_is_asked_was_right_all_the_same(end: Exception) -> None:
    candidate = Listed(end)
    assert candidate.kernels() == []
    assert candidate.record.findings == []


def test_a_candidate_that_still_owes_an_answer_is_not_asked() -> None:
    candidate = Listed({"kernels": [KERNEL], "failed": ""}, overdue=True)
    assert candidate.kernels() == candidate.asked == []
