"""`kerneldyno batch`: read a file of requests, write a file of results.

It may be stopped and started again at any time: requests with a verdict are not evaluated again. Files are read and
written line by line; the client's window limits the number of requests in progress.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from kerneldyno.cli.cards import summary_table
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
from kerneldyno.client.jsonl import BadLine, NotRequestsError, read_tasks
from kerneldyno.client.problem_names import mark_reference
from kerneldyno.client.sources import in_thread
from kerneldyno.rpc.input_files import STDIN, is_plain, open_input
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.rpc.profiles import clear_profile, decides_about_profile
from kerneldyno.v1.evaluation_pb2 import EvalRequest


def batch(
    tasks: Annotated[
        Path,
        typer.Argument(metavar="TASKS.jsonl", help="One JSON object, a request, per line; - is standard input."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RESULTS.jsonl", help="One JSON line per result.")],
    window: Annotated[int, typer.Option("--window", min=1, help="Most requests in progress at once.")] = 256,
    chosen: Chosen = NOTHING_CHOSEN,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Evaluate every request of TASKS.jsonl. Run it again to continue where it stopped.

    Options that set a field of requests apply to requests that leave the field unset.
    """
    with reporting():
        defaults = request_from_json(chosen.fields())
        with resumable(output), _opened(tasks) as stream:
            requests = _filled(read_tasks(stream), defaults)
            _check_output(output)
            with ResultsFile(output) as results:
                plain = is_plain(tasks)
                items = requests if plain else in_thread(requests)  # reading from a pipe may block
                judging = Judging(items, _count_lines(tasks) if plain else None, results)
                judging.run(Service(address, local, devices, sandbox, lanes), window)
        for note in judging.notes():
            print(f"kerneldyno: {note}", file=sys.stderr)
        outcomes, kept = judging.outcomes, judging.kept.total()
        total = outcomes.total()
        if as_json:
            print_json(
                {"requests": total, "skipped": kept, "judged_again": judging.changed, "outcomes": dict(outcomes)}
            )
        else:
            before = f", {kept} of them judged before" if kept else ""
            stdout().print(summary_table(outcomes, f"{total} requests{before}"))
        if missing := outcomes["INFRASTRUCTURE_ERROR"]:
            fail(
                f"{missing} of {total} requests have no verdict (INFRASTRUCTURE_ERROR); "
                f"run the same command to try them again",
                NO_VERDICT,
            )


@contextmanager
def _opened(tasks: Path) -> Iterator[io.BufferedReader]:
    """Open the requests.

    Raises:
        UsageError: they cannot be read; the message names the file.
    """
    try:
        with open_input(tasks) as stream:
            yield stream
    except NotRequestsError as error:
        raise UsageError(f"{'standard input' if tasks == STDIN else tasks}: {error}") from error


def _check_output(output: Path) -> None:
    """Refuse the file that is standard output: the summary would be written over the results."""
    with suppress(OSError, ValueError):  # no such file yet, or no standard output
        if os.path.samestat(os.fstat(sys.stdout.fileno()), output.stat()):
            raise UsageError(f"--output {output} is standard output, where the summary goes; give another file")


def _filled(items: Iterable[EvalRequest | BadLine], defaults: EvalRequest) -> Iterator[EvalRequest | BadLine]:
    """Yield the lines of the file; requests get unset fields from `defaults`, and a label for reports."""
    for item in items:
        if isinstance(item, BadLine):
            yield item
            continue
        filled = EvalRequest()
        filled.CopyFrom(defaults)
        for name in ("stress_kinds", "baselines", "library_baselines"):
            if getattr(item, name):
                filled.ClearField(name)  # merging would append the request's own to the defaults
        if decides_about_profile(item):
            clear_profile(filled)  # merging could join one field of the defaults with the other one of the item
        filled.MergeFrom(item)
        mark_reference(filled)
        yield filled


def _count_lines(path: Path) -> int:
    with path.open("rb", buffering=0) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b""))
