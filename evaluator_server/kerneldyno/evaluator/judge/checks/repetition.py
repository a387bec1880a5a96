"""Repetition: one call once more on the same inputs, with guard zones around what the candidate allocates in it.

It shows whether the same inputs and the same seed give the same bytes, and whether the candidate writes outside its
tensors. Bytes that differ are a label, unless the second answer is wrong or the request asks for equal ones. A write outside
is wrong, or a finding, as the request says. Called by the lane when all trials are right, before anything is timed.

Guard zones are the harness's work, in the candidate's process: a candidate that takes its harness over can hide a
broken zone, and gains nothing else. Writes to the judge's own memory around the inputs are seen by the judge itself, in
every trial (`Candidate.outside`).
"""

from __future__ import annotations

import functools
from dataclasses import replace

from kerneldyno.v1 import evaluation_pb2 as pb

from ...shared.enums import MemoryErrors
from ..comparison.evidence import Mismatch
from ..comparison.fingerprint import Fingerprint
from ..problems import trial
from ..problems.cache import BuiltProblem, Problems
from ..problems.inputs import draw
from ..results import verdict
from ..results.record import Finished
from ..runners.answers import Called
from .candidate import Candidate
from .correctness import Checked, compare_nominal, wrong

#: What stands for the number of the trial in evidence (IncorrectEvidence.trial): a call that repeats an earlier one.
_REPEATED_CALL = -3
#: The rules of memory, by the finding that says that one was broken. Only the first is looked at here.
MEMORY_RULES = {
    "M01": "writes outside its tensors",
    "M02": "reads outside its tensors",
    "M03": "races for shared memory",
    "M04": "reads memory that nobody has written",
    "M05": "uses a barrier wrongly",
}


async def repeat(candidate: Candidate, built: BuiltProblem, checked: Checked, problems: Problems) -> None:
    """Repeat the last nominal trial. Raises Finished if the answer is wrong, or if a broken rule of memory counts."""
    record = candidate.record
    current, answer = checked.last, checked.answer
    is_known = current.inputs.master.numel() > 0
    if not is_known:  # its inputs were too large to keep: call twice on new ones, whose right answer nobody knows
        inputs = await problems.execute(lambda: draw(built.problem, candidate.device, 0))
        current = replace(current, inputs=inputs, after=inputs.master)
        _, answer = await _call(candidate, current, checked.prints, guarded=False)
    try:
        called, again = await _call(candidate, current, checked.prints, guarded=True)
        broken = called.broken
    except Finished as failed:
        if failed.result.outcome == pb.EvalResult.TIMEOUT:
            raise
        broken, again = (), None
    if again != answer:  # the zones may be the cause, and then they prove nothing about the candidate
        called, again = await _call(candidate, current, checked.prints, guarded=False)
        if again != answer and is_known:
            compared = functools.partial(compare_nominal, candidate, built, current, called, _REPEATED_CALL)
            comparison = await problems.execute(compared)
            record.note(comparison)
            if comparison.mismatch is not None:
                record.deterministic = False
                raise wrong(candidate, built, None, _REPEATED_CALL, comparison)
    record.deterministic = again == answer
    if not record.deterministic and candidate.spec.checks.require_deterministic:
        evidence = "a second call on the same inputs, under the same seed, gave other bytes"
        mismatch = Mismatch("output", "not deterministic", evidence)
        raise Finished(verdict.incorrect(mismatch, _REPEATED_CALL, record.report(), record.findings))
    if broken and record.outside is None:
        record.outside = _REPEATED_CALL, "; ".join(map(str, broken))
    if record.outside is not None:
        number, where = record.outside
        report_memory_error(candidate, "M01", where, number)


def report_memory_error(candidate: Candidate, identifier: str, seen: str, number: int) -> None:
    """Report a broken rule of memory as a finding. Raises Finished if the request says that this makes it wrong.

    Args:
        candidate: The candidate.
        identifier: The id of the finding, of `MEMORY_RULES`.
        seen: What was seen of it.
        number: The number of the trial, or what stands for it.
    """
    record, evidence = candidate.record, f"{MEMORY_RULES[identifier]}: {seen}"
    record.find(identifier, pb.Finding.SEVERITY_WARNING, evidence)
    if candidate.spec.checks.memory_errors == MemoryErrors.REJECT:
        mismatch = Mismatch("memory", "memory", evidence)
        raise Finished(verdict.incorrect(mismatch, number, record.report(), record.findings))


async def _call(
    candidate: Candidate, current: trial.Trial, prints: Fingerprint, *, guarded: bool
) -> tuple[Called, int]:
    called = await candidate.call(current, guarded=guarded)
    return called, await candidate.fingerprint(prints)
