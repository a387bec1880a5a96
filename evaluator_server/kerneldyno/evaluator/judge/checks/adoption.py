"""A second chance for a candidate whose parameters have other values than the reference's of the same names.

A module that creates the same parameters in another order draws other values for them, and is wrong in every call. It
is then constructed once more, gets the reference's values, and everything is checked again, its first call included.
Called by the lane.
"""

from __future__ import annotations

from kerneldyno.v1 import evaluation_pb2 as pb

from ..comparison.evidence import Comparison
from ..problems.cache import BuiltProblem, Problems
from ..results.record import Finished
from . import correctness
from .candidate import Candidate
from .correctness import Checked

#: Kinds of mismatch that different parameters can cause.
_WRONG_VALUES = ("values", "non-finite", "precision")


async def check(candidate: Candidate, built: BuiltProblem, first: Comparison, problems: Problems) -> Checked:
    """Check the outputs. Check a wrong candidate once more with the reference's parameters, if it has others.

    Args:
        candidate: The candidate, which has been called once.
        built: Its problem.
        first: How the answer to that call compares.
        problems: The judge's problems.

    Raises:
        Finished: An output is wrong.
    """
    record = candidate.record
    before = list(record.findings)
    try:
        return await correctness.check(candidate, built, first, problems)
    except Finished as wrong:
        if wrong.result.incorrect.kind not in _WRONG_VALUES:
            raise
        try:
            adopted = await candidate.adopt(built.problem)
        except Finished:
            raise wrong from None  # it cannot be constructed again, so the first verdict stands
        if not adopted.given:
            if adopted.missing:
                evidence = (
                    f"the reference's {', '.join(sorted(adopted.missing))[:200]} have no counterpart of that name,"
                    " shape and dtype among the candidate's tensors; a tensor with the same name gets the same values"
                )
                record.find("S29", pb.Finding.SEVERITY_INFO, evidence)
                wrong.result.findings.append(record.findings[-1])
            raise
    record.start_again(before)
    evidence = (
        f"{', '.join(sorted(adopted.given))[:200]} had other values than the reference's tensors of the same names"
        " (are they created in another order?), and were given the reference's values"
    )
    record.find("S29", pb.Finding.SEVERITY_INFO, evidence)
    current = await problems.execute(lambda: built.prepare(candidate.spec, candidate.device, 0))
    first = await correctness.call_first(candidate, built, current, problems)
    del current
    return await correctness.check(candidate, built, first, problems)
