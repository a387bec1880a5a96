"""Options that say what is judged, the same for `evaluate` and `profile`: the files, and the fields of their request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kerneldyno.cli import flashinfer_trace
from kerneldyno.cli.candidate_options import BuildOptions, default_backend, read_candidate_argument
from kerneldyno.cli.chosen import Chosen
from kerneldyno.cli.common import UsageError, read_source
from kerneldyno.cli.flashinfer_trace import is_definition
from kerneldyno.client.problem_names import PROBLEM_LABEL, name_of_file
from kerneldyno.rewards.extraction import defines
from kerneldyno.rpc.input_files import STDIN
from kerneldyno.rpc.jsonio import request_from_json, request_to_json, with_defaults
from kerneldyno.rpc.source import without_mark
from kerneldyno.rpc.validation import DEFAULT_ENTRY_POINT, DEFAULT_TOOLKIT
from kerneldyno.v1.evaluation_pb2 import EvalRequest

#: Fields that hold the candidate.
_CANDIDATE = {"kernel_code", "kernel_files"}
#: Fields that hold programs, or replace one.
_SOURCES = {"reference_code", *_CANDIDATE, "cases_code", "cases"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The candidate, its problem, and how it is judged. It is a group of options (see grouped.py)."""

    reference: Annotated[
        Path | None, typer.Argument(metavar="REFERENCE.py", help="The reference; with --cases, the candidate.")
    ] = None
    candidate: Annotated[
        Path | None,
        typer.Argument(
            metavar="CANDIDATE",
            help="The candidate: a .py, .cu or .cpp file, or a folder with candidate.py and native sources; - is"
            " standard input.",
        ),
    ] = None
    cases: Annotated[
        Path | None, typer.Option("--cases", help="Python file with get_cases(), for the kernel_simple toolkit.")
    ] = None
    workloads: Annotated[
        Path | None,
        typer.Option(
            "--workloads",
            metavar="FILE",
            help="Workloads, a line of JSON each: values for get_inputs, or lines of FlashInfer Trace for its definition.",
        ),
    ] = None
    request_file: Annotated[
        Path | None,
        typer.Option(
            "--request",
            metavar="FILE",
            help="JSON object with fields of a request, like a line of `batch`; - is standard input. It may hold the"
            " sources. Options and files on the command line override it.",
        ),
    ] = None
    backend: Annotated[
        str | None,
        typer.Option("--backend", help="triton (default), cuda (default with native sources), torch, or a plug-in's."),
    ] = None
    toolkit: Annotated[
        str | None,
        typer.Option("--toolkit", help="kernelbench, kernel_simple (default with --cases), or a plug-in's."),
    ] = None
    entry_point: Annotated[
        str | None, typer.Option("--entry-point", help="Class of the reference, or the callable. Default Model.")
    ] = None
    trials: Annotated[int | None, typer.Option("--trials", help="Correctness trials, 1 to 20. Default 5.")] = None
    perf_trials: Annotated[
        int | None, typer.Option("--perf-trials", help="Most timed calls for each time, up to 1000. Default 100.")
    ] = None
    atol: Annotated[
        float | None, typer.Option("--atol", help="Absolute tolerance (with allclose, or a matched share).")
    ] = None
    rtol: Annotated[
        float | None, typer.Option("--rtol", help="Relative tolerance (with allclose, or a matched share).")
    ] = None
    matched_share: Annotated[
        float | None,
        typer.Option("--matched-share", help="Share of elements that must be right, such as 0.95: looser."),
    ] = None
    stage_timeout: Annotated[float | None, typer.Option("--timeout", help="Limit of each stage, in seconds.")] = None
    device: Annotated[str | None, typer.Option("--device", metavar="cuda|cpu", help="Kind of device.")] = None
    no_performance: Annotated[bool, typer.Option("--no-performance", help="Judge correctness only.")] = False
    skip_cache: Annotated[
        bool, typer.Option("--skip-cache", help="Evaluate again, even if an earlier result could answer.")
    ] = False

    def request(self, chosen: Chosen, build: BuildOptions) -> EvalRequest:
        """Return the request that the options make. Raises UsageError."""
        filed, fields = gathered(
            *(self.reference, self.candidate, self.cases, self.workloads, self.request_file),
            *(self.toolkit, self.entry_point),
        )
        optional = {
            "backend": self.backend,
            "toolkit": self.toolkit,
            "entry_point": self.entry_point,
            "num_correct_trials": self.trials,
            "num_perf_trials": self.perf_trials,
            "timeouts": self.stage_timeout,
            "device": None if self.device is None else {**filed.get("device", {}), "kind": self.device},
            "run_performance": False if self.no_performance else None,
            "skip_cache": self.skip_cache or None,
            "build_flags": build.field(filed.get("build_flags", {})),
        }
        fields |= {name: value for name, value in optional.items() if value is not None}
        fields = with_defaults(chosen.fields(), fields)
        numbers = {"atol": self.atol, "rtol": self.rtol, "matched_share": self.matched_share}
        if tolerance := {name: value for name, value in numbers.items() if value is not None}:
            preset = "allclose" if self.matched_share is None else "matched_share"
            fields["tolerance"] = {**filed.get("tolerance", {}), "preset": preset, **tolerance}
        try:
            request = request_from_json(fields)
            build.check(request)
            request.backend = request.backend or default_backend(request)
            name = _problem(self.reference, self.candidate, self.cases)
            if name and PROBLEM_LABEL not in request.labels:
                request.labels[PROBLEM_LABEL] = name
        except ValueError as error:
            raise UsageError(str(error)) from error
        return request


def gathered(
    reference: Path | None,
    candidate: Path | None,
    cases: Path | None,
    workloads: Path | None,
    request_file: Path | None,
    toolkit: str | None,
    entry_point: str | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of --request, and these together with those that the files on the command line give.

    Raises UsageError.
    """
    if [reference, candidate, cases, workloads, request_file].count(STDIN) > 1:
        raise UsageError("- is standard input, and can be only one of the files")
    filed: dict[str, Any] = {} if request_file is None else _read_request(request_file)
    if (reference, candidate, cases) == (None, None, None) and filed.keys() & _SOURCES:
        sources = dict[str, Any]()
    elif reference is not None and candidate is None and filed.keys() & _SOURCES and not filed.keys() & _CANDIDATE:
        sources = read_candidate_argument(reference)  # the request file has the reference
    elif given_twice := sorted(filed.keys() & _SOURCES):
        raise UsageError(f"{', '.join(given_twice)}: in {request_file} and on the command line; give it only once")
    elif reference is not None and candidate is not None and is_definition(reference):
        sources = flashinfer_trace.request_fields(reference, candidate, workloads)
    else:
        sources = _sources(reference, candidate, cases, toolkit or filed.get("toolkit"))
    if workloads is not None and "workloads" not in sources:
        sources["workloads"] = _read_lines(workloads)
    kernelbench = (toolkit or filed.get("toolkit", DEFAULT_TOOLKIT)) == DEFAULT_TOOLKIT
    if reference is not None and candidate is not None and kernelbench and not is_definition(reference):
        _check_order(reference, candidate, sources, entry_point or filed.get("entry_point", DEFAULT_ENTRY_POINT))
    return filed, {**filed, **sources}


def _read_request(path: Path) -> dict[str, Any]:
    """Return the fields in a file of --request, by the contract's names.

    Raises:
        UsageError: the file cannot be read or is not a JSON object.
    """
    name = "standard input" if path == STDIN else str(path)
    try:
        data = json.loads(without_mark(read_source(path)))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(
            f"{name} holds a {type(data).__name__}: give one JSON object, like a line of `kerneldyno batch`"
        )
    try:
        return request_to_json(request_from_json(data))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def _read_lines(path: Path) -> list[Any]:
    """Return the JSON values of a file, one of each line that is not empty. Raises UsageError."""
    values = []
    for number, line in enumerate(read_source(path).splitlines(), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{path}, line {number} is not JSON: {error}") from error
    return values


def _check_order(reference: Path, candidate: Path, sources: Mapping[str, Any], entry_point: str) -> None:
    """Raise UsageError if the files seem to be in the wrong order, in which no verdict is possible."""
    theirs, new = sources["reference_code"], f"{entry_point}New"
    if defines(theirs, [new]) and not defines(theirs, [entry_point]):
        found = f"{reference}, given as the reference, defines {new} but not {entry_point}"
    elif new not in (own := sources["kernel_code"]) and defines(own, [entry_point]) and defines(own, ["get_inputs"]):
        found = f"{candidate}, given as the candidate, defines {entry_point} and get_inputs, but not {new}"
    else:
        return
    raise UsageError(f"{found}: are the arguments swapped? Give REFERENCE.py first, then the candidate")


def _sources(first: Path | None, second: Path | None, cases: Path | None, toolkit: str | None) -> dict[str, Any]:
    if first is None:
        raise UsageError("give REFERENCE.py and CANDIDATE.py, or a --request FILE that has the sources")
    if cases is not None:
        if second is not None:
            raise UsageError("with --cases give only the candidate: the cases hold the expected outputs")
        candidate = read_candidate_argument(first)
        return {"toolkit": toolkit or "kernel_simple", "cases_code": read_source(cases), **candidate}
    if second is not None:
        if first.is_dir():
            raise UsageError(f"{first} is a folder, but a reference is one file: give REFERENCE.py, then the candidate")
        return {"reference_code": read_source(first), **read_candidate_argument(second)}
    if toolkit in (None, "kernelbench", "kernel_simple"):
        raise UsageError("give REFERENCE.py and CANDIDATE.py, or CANDIDATE.py with --cases CASES.py")
    return read_candidate_argument(first)


def _problem(first: Path | None, second: Path | None, cases: Path | None) -> str:
    """Return the problem's name for lists and reports: the file of the reference, or that of the cases; "" without."""
    reference = cases or (first if second is not None else None)
    return "" if reference is None else name_of_file(reference)
