"""`kerneldyno baseline save` and `compare`: keep the times of references, and compare later candidates with them."""

from __future__ import annotations

import json
import statistics
import sys
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf import json_format
from rich.table import Table

from kerneldyno.cli.cards import plain
from kerneldyno.cli.common import Json, UsageError, print_json, read_source, reporting, stdout
from kerneldyno.client.problem_names import PROBLEM_LABEL
from kerneldyno.report import stored_baselines
from kerneldyno.report.markup import visible
from kerneldyno.report.reading import uncompressed
from kerneldyno.report.stored_baselines import Comparison, NotBaselinesError
from kerneldyno.rpc.input_files import open_input
from kerneldyno.rpc.jsonio import result_from_json
from kerneldyno.v1.evaluation_pb2 import EvalResult

#: Most bytes of results that are read at once.
_MAX_BYTES = 1 << 30

Results = Annotated[
    Path,
    typer.Argument(metavar="RESULTS", help="Output of `batch`, `suite` or `evaluate --json`; - is standard input."),
]
ProblemLabel = Annotated[
    str, typer.Option("--problem-label", metavar="KEY", help="Label of results that names their problem.")
]

baseline = typer.Typer(
    name="baseline",
    help="Keep the times of references, and compare candidates of another day with them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@baseline.command()
def save(
    results: Results,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BASELINES.json", help="The file.")],
    problem_label: ProblemLabel = PROBLEM_LABEL,
    as_json: Json = False,
) -> None:
    """Write the times of the references in RESULTS to a file: for each problem, workload and form of the reference."""
    with reporting():
        try:
            found = stored_baselines.collect(_read(results), problem_label)
        except NotBaselinesError as error:
            raise UsageError(f"{results}: {error}") from error
        try:
            output.write_text(stored_baselines.dumped(found), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--output {output}: {error.strerror or error}") from error
        where = found[0].environment
        if as_json:
            print_json({"baselines": len(found), "file": str(output), "environment": where})
        else:
            problems = len({one.problem for one in found})
            text = f"{len(found)} baselines of {problems} problems on {where['device_model']} in {output}"
            stdout().print(plain(text), soft_wrap=True)


@baseline.command()
def compare(
    results: Results,
    baselines: Annotated[Path, typer.Argument(metavar="BASELINES.json", help="Output of `baseline save`.")],
    problem_label: ProblemLabel = PROBLEM_LABEL,
    as_json: Json = False,
) -> None:
    """Compare the right candidates of RESULTS with stored baselines, and say what differs between the two days."""
    with reporting():
        try:
            stored = stored_baselines.loaded(read_source(baselines))
        except NotBaselinesError as error:
            raise UsageError(f"{baselines} {error}") from error
        found, warnings = stored_baselines.compare(_read(results), stored, problem_label)
        for text in warnings:
            print(f"kerneldyno: {visible(text)}", file=sys.stderr)
        if not found:
            raise UsageError(f"no right, timed candidate of {results} has a baseline in {baselines}")
        means = _means(found)
        if as_json:
            print_json({"comparisons": [_row(one) for one in found], "geometric_means": means, "warnings": warnings})
            return
        table = Table("candidate", "problem", "workload", "baseline", show_edge=False)
        for head in ("stored", "candidate's", "speedup", "beside it"):
            table.add_column(head, justify="right")
        for one in found:
            base = one.baseline
            table.add_row(
                *(plain(text) for text in (one.id, base.problem, base.workload, base.form)),
                f"{base.median_seconds * 1e6:.2f} us",
                f"{one.candidate_seconds * 1e6:.2f} us",
                f"{one.speedup:.3f}",
                f"{one.measured_speedup:.3f}" if base.form == stored_baselines.REFERENCE else "",
            )
        stdout().print(table)
        for form, mean in means.items():
            stdout().print(plain(f"geometric mean of the speedups over {form}: {mean:.3f}"), soft_wrap=True)


def _means(found: Iterable[Comparison]) -> dict[str, float]:
    speedups: dict[str, list[float]] = {}
    for one in found:
        speedups.setdefault(one.baseline.form, []).append(one.speedup)
    return {form: statistics.geometric_mean(values) for form, values in sorted(speedups.items())}


def _row(one: Comparison) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if name != "baseline"} | {
        name: getattr(one.baseline, name) for name in ("problem", "workload", "form", "median_seconds")
    }


def _read(path: Path) -> list[EvalResult]:
    """Return the results in a file of JSON Lines, or of one JSON document. Raises UsageError."""
    try:
        with open_input(path) as stream:
            data = uncompressed(stream).read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{path} is longer than {_MAX_BYTES >> 20} MiB: give a part of it")
    try:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):  # the first line of a document is not one
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} holds no results: {error}") from error
        lines = document if isinstance(document, list) else [document]
    try:
        return [result_from_json(line) for line in lines]
    except (json_format.Error, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} holds something that is not a result: {str(error)[:200]}") from error
