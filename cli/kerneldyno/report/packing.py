"""Data for the page's script: JSON, compressed by gzip, in base64, so that no byte of it has a meaning in HTML.

The index has one row per candidate and is read when the page opens. Details (sources, logs, facts) are in separate
blocks, each read when it is first shown.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from kerneldyno.report.candidates import Candidate, colour
from kerneldyno.report.joining import References
from kerneldyno.report.markup import node, visible
from kerneldyno.report.sections import STYLES
from kerneldyno.report.shelf import Kept

#: A block of details ends with the candidate that makes it longer than this, in characters of JSON.
_BLOCK_CHARS = 1 << 19
_MESSAGE_CHARS = 200


def in_order(found: Sequence[Candidate]) -> list[Candidate]:
    """Return problems in the order of their first candidate; within each, episodes with their turns together."""
    problems = {problem: index for index, problem in enumerate(dict.fromkeys(one.problem for one in found))}
    ranked = sorted(enumerate(found), key=lambda one: (problems[one[1].problem], one[1].place or ("", 0, 0), one[0]))
    return [candidate for _, candidate in ranked]


def pack(ordered: Sequence[Candidate], references: References) -> list[Element]:
    """Return the page's blocks of data, the index first."""
    details = _Blocks(_details(candidate) for candidate in ordered)
    problems = list(dict.fromkeys(candidate.problem for candidate in ordered))
    sources = _Blocks([_text(references.sources.get(problem)) for problem in problems])
    index = _index(ordered, problems) | {"details": details.starts, "references": sources.starts}
    return [
        _block("index", json.dumps(index)),
        *(_block(f"details-{number}", text) for number, text in enumerate(details.texts)),
        *(_block(f"references-{number}", text) for number, text in enumerate(sources.texts)),
    ]


def _index(ordered: Sequence[Candidate], problems: Sequence[str]) -> dict[str, Any]:
    outcomes = list(dict.fromkeys(candidate.outcome for candidate in ordered))
    findings = list(dict.fromkeys(finding.id for candidate in ordered for finding in candidate.findings))
    problem_of, outcome_of, finding_of = (
        {value: at for at, value in enumerate(of)} for of in (problems, outcomes, findings)
    )
    return {
        "problems": [visible(problem) for problem in problems],
        "outcomes": [[visible(name), STYLES[colour(name)]] for name in outcomes],
        "findings": [visible(finding) for finding in findings],
        "problem": [problem_of[candidate.problem] for candidate in ordered],
        "outcome": [outcome_of[candidate.outcome] for candidate in ordered],
        "name": [visible(_name(candidate)) for candidate in ordered],
        "speedup": [_short(candidate.speedup) for candidate in ordered],
        "low": [_short(candidate.low) for candidate in ordered],
        "high": [_short(candidate.high) for candidate in ordered],
        "by": [candidate.by for candidate in ordered],
        "other": [_short(candidate.other) for candidate in ordered],
        "seconds": [_short(candidate.candidate_seconds) for candidate in ordered],
        "reference": [_short(candidate.reference_seconds) for candidate in ordered],
        "interpreted": [int(candidate.interpreted) for candidate in ordered],
        "counts": [int(candidate.counts) for candidate in ordered],
        "noticed": [sorted({finding_of[finding.id] for finding in candidate.findings}) for candidate in ordered],
        "message": ["" if candidate.correct else visible(candidate.message[:_MESSAGE_CHARS]) for candidate in ordered],
        "previous": _previous(ordered),
    }


def _name(candidate: Candidate) -> str:
    """Return what distinguishes a candidate from others of its problem; samples and turns are counted from 1."""
    if candidate.place is None:
        return candidate.id.removeprefix(candidate.problem + "/")
    group, sample, turn = candidate.place
    return ("" if group == candidate.problem else f"{group}, ") + f"sample {sample + 1}, turn {turn + 1}"


def _previous(ordered: Sequence[Candidate]) -> list[int]:
    """Return the row of the previous turn for each candidate, -1 without one."""
    rows = []
    for row, candidate in enumerate(ordered):
        before = ordered[row - 1].place if row else None
        follows = candidate.place is not None and before is not None and before[:2] == candidate.place[:2]
        rows.append(row - 1 if follows else -1)
    return rows


def _details(candidate: Candidate) -> dict[str, Any]:
    return {
        "message": visible(candidate.message),
        "facts": [[visible(name), visible(value)] for name, value in candidate.facts],
        "findings": [
            [visible(finding.id), finding.severity, visible(finding.evidence[:2000])]
            for finding in candidate.findings[:50]
        ],
        "source": _text(candidate.source),
        "texts": [[heading, *(_text(text) or [])] for heading, text in candidate.texts],
    }


def _text(kept: Kept | None) -> list[Any] | None:
    """Return a text, and the size of the whole in bytes if it was cut."""
    return None if kept is None else [kept.text, kept.size if kept.is_cut else 0]


class _Blocks:
    """JSON arrays of about the same length: their texts, and the index of the first value of each."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.texts: list[str] = []
        self.starts: list[int] = []
        waiting: list[str] = []
        length = 0
        for number, value in enumerate(values):
            if not waiting:
                self.starts.append(number)
            waiting.append(json.dumps(value))
            length += len(waiting[-1])
            if length > _BLOCK_CHARS:
                self._end(waiting)
                waiting, length = [], 0
        if waiting:
            self._end(waiting)

    def _end(self, waiting: Sequence[str]) -> None:
        self.texts.append(f"[{','.join(waiting)}]")


def _block(id: str, text: str) -> Element:
    packed = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
    return node("script", packed, id=id, type="text/plain")


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
