"""`kerneldyno report`: make one HTML page from results or trajectories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kerneldyno.cli.common import Json, UsageError, print_json, reporting
from kerneldyno.rpc.input_files import STDIN, open_input

_MIB = 1 << 20


def report(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS.jsonl",
            help="Output of `batch`, `rollout`, a trainer or `evaluations --json`, gzip or not; - is standard input.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REPORT.html", help="The page.")],
    requests: Annotated[
        Path | None,
        typer.Option("--requests", metavar="REQUESTS.jsonl", help="Input of `batch`: sources and references."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Default: the name of the file.")] = None,
    problem_label: Annotated[
        str, typer.Option("--problem-label", metavar="KEY", help="Label of results that names their problem.")
    ] = "problem",
    group_label: Annotated[
        str, typer.Option("--group-label", metavar="KEY", help="Label of a problem's group. Default: from its name.")
    ] = "",
    budget: Annotated[
        int, typer.Option("--budget", min=1, max=1024, metavar="MIB", help="Most sources, logs and answers, in MiB.")
    ] = 64,
    as_json: Json = False,
) -> None:
    """Make a page of RESULTS.jsonl that needs no network, no server and no other file."""
    from kerneldyno.report.making import Gatherer
    from kerneldyno.report.markup import visible
    from kerneldyno.report.reading import ReportInputError

    with reporting():
        for path in (results, requests):
            if path is not None and path.exists() and output.exists() and path.samefile(output):
                raise UsageError(f"--output {output} is an input of the report; give another file")
        gatherer = Gatherer(budget)
        try:
            with open_input(results) as stream:
                gatherer.results(stream, problem_label, group_label)
        except ReportInputError as error:
            raise UsageError(f"{results} {error}") from error
        except OSError as error:
            raise UsageError(f"{results}: {error.strerror or error}") from error
        try:
            if requests is None:
                material = gatherer.finish()
            else:
                with open_input(requests) as stream:
                    material = gatherer.finish(stream)
        except (OSError, EOFError) as error:
            raise UsageError(f"{requests}: {getattr(error, 'strerror', None) or error}") from error
        name = "standard input" if results == STDIN else results.name
        text = material.page(title or name, name)
        try:
            output.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"--output {output}: {error.strerror or error}") from error
        found = material.figures
        for note in (*material.notes, *found.notes):
            print(f"kerneldyno: {visible(note)}", file=sys.stderr)
        if as_json:
            print_json({"report": str(output), "bytes": len(text), **found.to_json()})
        else:
            print(
                f"{found.candidates} candidates of {found.problems} problems in {output} ({len(text) / _MIB:.1f} MiB)"
            )
