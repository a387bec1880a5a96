"""`kerneldyno suite`: judge a folder of problems with a candidate each; show a table of wins and write a report.

It may be stopped and started again: problems with a verdict are not evaluated again, unless sources or settings
changed.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerneldyno.cli import suite_folders
from kerneldyno.cli.candidate_options import default_backend, read_candidate_argument
from kerneldyno.cli.chosen import NOTHING_CHOSEN, Chosen
from kerneldyno.cli.common import (
    NO_VERDICT,
    Address,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    UsageError,
    fail,
    print_json,
    reporting,
    stdout,
)
from kerneldyno.cli.judging import Judging, resumable
from kerneldyno.cli.results_file import ResultsFile
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.client.problem_names import group_of
from kerneldyno.rollout.problems import ProblemError
from kerneldyno.rpc.input_files import open_input
from kerneldyno.rpc.jsonio import request_to_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest

if TYPE_CHECKING:
    from kerneldyno.report.making import Material

#: Files of a run, in its folder.
_RESULTS, _REQUESTS, _PAGE, _SUITE = "results.jsonl", "requests.jsonl", "report.html", "suite.json"
_WINDOW = 256


def suite(
    problems: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PROBLEMS...", help="Folders, .py, .jsonl or .parquet files, as for `rollout`."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN", help="Folder for results, requests and report.")
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", help="Folder of candidates, named as the problems or by KernelBench's scripts."),
    ] = None,
    against_itself: Annotated[
        bool, typer.Option("--against-itself", help="Use each problem as its own candidate: every speedup should be 1.")
    ] = False,
    saved: Annotated[
        Path | None, typer.Option("--saved", metavar="RUN", help="Judge nothing; show a run, or a file of results.")
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Number of KernelBench's sample of a problem.")] = 0,
    backend: Annotated[
        str | None, typer.Option("--backend", help="triton (default), cuda, torch (with --against-itself), ...")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="Correctness trials, 1 to 20. Default 5.")] = None,
    perf_trials: Annotated[
        int | None, typer.Option("--perf-trials", help="Most timed calls for each time, up to 1000. Default 100.")
    ] = None,
    chosen: Chosen = NOTHING_CHOSEN,
    stage_timeout: Annotated[float | None, typer.Option("--timeout", help="Limit of each stage, in seconds.")] = None,
    thresholds: Annotated[
        list[float] | None, typer.Option("--p", min=0.0, help="A threshold of fast@p; give several. Default 1, 1.5, 2.")
    ] = None,
    slowest: Annotated[int, typer.Option("--slowest", min=0, help="How many of the slowest problems to list.")] = 10,
    skip_cache: Annotated[
        bool, typer.Option("--skip-cache", help="Evaluate all again, even if earlier results could answer.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Judge a folder of problems, one candidate each; show how many are won, and make a report.

    A win counts if the whole interval of its speedup is above p. Run it again to continue where it stopped.
    """
    with reporting():
        if saved is not None:
            if problems or candidates or against_itself or output:
                raise UsageError("--saved shows an existing run: give nothing else to judge, and no --output")
            shown = _saved(saved)
        else:
            if output is None:
                raise UsageError("give --output RUN, a folder for the results (or --saved RUN to show one)")
            settings = _settings(backend, against_itself, trials, perf_trials, stage_timeout, skip_cache)
            settings |= chosen.fields()
            try:
                plan = _planned(problems or [], candidates, against_itself, sample, settings)
            except ProblemError as error:
                raise UsageError(str(error)) from error
            except OSError as error:
                raise UsageError(f"{error.filename}: {error.strerror or error}") from error
            shown = _judged(plan, output, Service(address, local, devices, sandbox, lanes))
        _show(shown, thresholds, slowest, as_json)
        if shown.lost:
            fail(
                f"without a verdict (INFRASTRUCTURE_ERROR): {shown.lost}; judge the suite again to continue", NO_VERDICT
            )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Names of all problems, and the requests of those that have a candidate."""

    names: list[str]
    requests: list[EvalRequest]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A run to be shown: names of all its problems, and their outcomes."""

    names: list[str]
    material: Material
    notes: list[str]
    #: Path of the page; None if none was made.
    page: Path | None = None

    @property
    def lost(self) -> int:
        """Return the number of problems for which infrastructure failed."""
        return sum(candidate.outcome == "INFRASTRUCTURE_ERROR" for candidate in self.material.candidates)


def _settings(
    backend: str | None,
    against_itself: bool,
    trials: int | None,
    perf_trials: int | None,
    stage_timeout: float | None,
    skip_cache: bool,
) -> dict[str, Any]:
    """Return the chosen fields of every request."""
    fields = {
        "backend": backend or ("torch" if against_itself else None),
        "num_correct_trials": trials,
        "num_perf_trials": perf_trials,
        "timeouts": stage_timeout,
        "skip_cache": skip_cache or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _planned(
    paths: list[Path], folder: Path | None, against_itself: bool, sample: int, settings: dict[str, Any]
) -> _Plan:
    """Find problems and candidates.

    Raises:
        UsageError, ProblemError, OSError: options contradict each other, or files cannot be used.
    """
    if (folder is None) == (not against_itself):
        raise UsageError("give either --candidates FOLDER or --against-itself, not both")
    entries = suite_folders.find_problems(paths)
    candidates = None if folder is None else suite_folders.Candidates(folder, sample)
    requests, missing = [], []
    for entry in entries:
        candidate: dict[str, Any] | None = {"kernel_code": suite_folders.renamed(entry.problem)}
        if candidates is not None:
            path = candidates.of(entry)
            candidate = None if path is None else read_candidate_argument(path)
        if candidate is None:
            missing.append(entry.name)
        else:
            files = candidate.get("kernel_files", ())
            request = suite_folders.request_of(entry, candidate["kernel_code"], settings, files)
            request.backend = request.backend or default_backend(request)
            requests.append(request)
    notes = []
    if candidates is not None and not requests:
        raise UsageError(
            f"no file in {folder} is the candidate of any problem: name them {entries[0].name}.py,"
            " or level_1_problem_19_sample_0_kernel.py as KernelBench's scripts do"
        )
    if missing:
        notes.append(f"{_some(missing, 'problem')} without a candidate, which count as lost")
    if candidates is not None and (unused := candidates.unused(entries)):
        notes.append(f"{_some([path.name for path in unused], 'file')} of {folder} that are no problem's candidate")
    return _Plan([entry.name for entry in entries], requests, notes)


def _some(names: list[str], what: str) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({names[0]}{more})"


def _judged(plan: _Plan, folder: Path, service: Service) -> _Shown:
    """Judge everything without a verdict and keep all files in the run's folder."""
    with resumable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with ResultsFile(folder / _RESULTS) as results:
            if strangers := results.earlier.keys() - set(plan.names):
                others = _some(sorted(strangers), "problem")
                raise UsageError(f"{folder} holds results of {others} that were not given: give another --output")
            results.drop(
                set(plan.names) - {request.id for request in plan.requests}
            )  # their candidates no longer exist
            (folder / _SUITE).write_text(json.dumps({"problems": plan.names}) + "\n", encoding="utf-8")
            with (folder / _REQUESTS).open("w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(request_to_json(request)) + "\n" for request in plan.requests)
            judging = Judging(plan.requests, len(plan.requests), results)
            judging.run(service, _WINDOW)
            results.finish()
            shown = _saved(folder)
            page = folder / _PAGE
            page.write_text(shown.material.page(folder.name, _RESULTS), encoding="utf-8", newline="\n")
    return _Shown(plan.names, shown.material, [*plan.notes, *judging.notes(), *shown.material.notes], page)


def _saved(path: Path) -> _Shown:
    """Read a run's folder, or a file of results."""
    from kerneldyno.report.candidates import TOO_LARGE
    from kerneldyno.report.making import Gatherer
    from kerneldyno.report.reading import ReportInputError

    results = path / _RESULTS if path.is_dir() else path
    requests = results.with_name(_REQUESTS)
    gatherer = Gatherer()
    try:
        with open_input(results) as stream:
            gatherer.results(stream)
        if path.is_dir() and requests.exists():
            with open_input(requests) as stream:
                material = gatherer.finish(stream)
        else:
            material = gatherer.finish()
        names = [candidate.problem for candidate in material.candidates]
        if path.is_dir():
            names = json.loads((path / _SUITE).read_text(encoding="utf-8"))["problems"]
    except ReportInputError as error:
        raise UsageError(f"{results} {error}") from error
    except OSError as error:
        raise UsageError(f"{error.filename or results}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path / _SUITE} is not what `kerneldyno suite` writes: {error}") from error
    judged = Counter(candidate.problem for candidate in material.candidates)
    if several := [name or "no name" for name, count in judged.items() if count > 1]:
        raise UsageError(
            f"{results} has several candidates of {_some(several, 'problem')}, but a suite has one of each (by the label"
            ' "problem", or by the id up to its last slash): `kerneldyno report` shows them all'
        )
    open_names = [name for name in dict.fromkeys(names) if name not in judged]
    notes = [f"{_some(open_names, 'problem')} without a result"] if open_names else []
    if large := [candidate.problem for candidate in material.candidates if candidate.outcome == TOO_LARGE]:
        notes.append(f"{_some(large, 'problem')} too large for every device here ({TOO_LARGE}), which count as not won")
    return _Shown(list(dict.fromkeys(names)), material, [*material.notes, *notes])


def _show(shown: _Shown, thresholds: list[float] | None, slowest: int, as_json: bool) -> None:
    from kerneldyno.cli.suite_view import suite_tables
    from kerneldyno.report.fast import THRESHOLDS, fast_rows
    from kerneldyno.report.markup import visible

    names = [(name, group_of(name)) for name in shown.names]
    rows = fast_rows(names, shown.material.candidates, sorted(set(thresholds or THRESHOLDS)))
    if as_json:
        page = None if shown.page is None else str(shown.page)
        print_json({"report": page, "groups": [asdict(row) for row in rows], **shown.material.figures.to_json()})
        return
    for note in shown.notes:
        print(f"kerneldyno: {visible(note)}", file=typer.get_text_stream("stderr"))
    for part in suite_tables(rows, shown.material, slowest):
        stdout().print(part)
    if shown.page is not None:
        print(f"\nreport: {shown.page}")
