"""Add to results what only their requests have: the candidates' sources, the references, and the problems."""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import dataclass, field

from kerneldyno.client.jsonl import BadLine, read_requests
from kerneldyno.client.problem_names import names_by_ids, reference_key
from kerneldyno.report.candidates import Candidate
from kerneldyno.report.reading import uncompressed
from kerneldyno.report.shelf import Kept, Shelf
from kerneldyno.rpc.candidate_files import candidate_text
from kerneldyno.v1.evaluation_pb2 import EvalRequest


@dataclass(slots=True)
class References:
    """The references, by problem, and notes on the requests."""

    sources: dict[str, Kept] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def join(found: list[Candidate], requests: io.BufferedReader | None, shelf: Shelf) -> References:
    """Give every candidate a problem and, if its request is in the file, its source.

    The problem is the one that the file names. Otherwise the candidates of one reference are one problem, identified by
    their requests or by a label of `batch`, and named by their ids (`names_by_ids`). Otherwise an id up to its last
    slash names it.

    Raises:
        OSError: reading fails (EOFError: a compressed file is cut off).
    """
    references = References()
    texts: dict[str, Kept] = {}
    if requests is not None:
        by_id = {candidate.id: candidate for candidate in found}
        bad = without_result = 0
        for request in read_requests(uncompressed(requests)):
            if isinstance(request, BadLine):
                bad += 1
            elif (candidate := by_id.pop(request.id, None)) is None:
                without_result += 1
            else:
                _take(candidate, request, shelf, texts)
        references.notes = _notes(len(found), bad, without_result, len(by_id))
    unnamed: dict[str, list[str]] = defaultdict(list)
    for candidate in found:
        if candidate.reference and not candidate.problem:
            unnamed[candidate.reference].append(candidate.id)
    names = names_by_ids(unnamed)
    for candidate in found:
        candidate.problem = candidate.problem or names.get(candidate.reference, "") or candidate.id.rpartition("/")[0]
        if candidate.reference in texts:
            references.sources.setdefault(candidate.problem, texts[candidate.reference])
    return references


def _take(candidate: Candidate, request: EvalRequest, shelf: Shelf, texts: dict[str, Kept]) -> None:
    if candidate.source is None and (text := candidate_text(request)):
        candidate.source = shelf.keep(text)
    if key := reference_key(request):
        if key not in texts:
            texts[key] = shelf.keep(request.reference_code or request.cases_code)
        candidate.reference = key


def _notes(results: int, bad: int, without_result: int, without_request: int) -> list[str]:
    notes = []
    if without_request:
        notes.append(f"{without_request} of {results} candidates have no request of their id in the file of requests")
    if without_result:
        notes.append(f"{without_result} requests have no result (yet) and are in no figure")
    if bad:
        notes.append(f"{bad} lines of the file of requests are no requests")
    return notes
