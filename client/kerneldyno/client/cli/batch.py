"""`kerneldyno batch`: a file of requests in, a file of results out.

It may be stopped and started again at any time: what has a verdict is not evaluated again. Files are read and written
line by line; how many requests are under way is bounded by the client's window.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import typer
from kerneldyno.client.aio import DEFAULT_ADDRESS
from kerneldyno.client.cli.cards import summary_table
from kerneldyno.client.cli.common import (
    NO_VERDICT,
    Address,
    CandidateMemory,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    SpeedupKind,
    TimingPrecision,
    chosen_fields,
    fail,
    print_json,
    reporting,
    stdout,
)
from kerneldyno.client.cli.judging import Judging, resumable
from kerneldyno.client.jsonl import BadLine, ResultsFile, read_requests
from kerneldyno.client.problem_names import mark_reference
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest


def batch(
    tasks: Annotated[Path, typer.Argument(metavar="TASKS.jsonl", help="One JSON object a line: a request each.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RESULTS.jsonl", help="One JSON line a result.")],
    window: Annotated[int, typer.Option("--window", min=1, help="Most requests under way at once.")] = 256,
    timing_precision: TimingPrecision = None,
    speedup_kind: SpeedupKind = None,
    candidate_memory: CandidateMemory = None,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Judge every request of TASKS.jsonl. Run it again to go on where it stopped.

    --timing-precision, --speedup-kind and --candidate-memory are for requests that leave these fields open.
    """
    with reporting():
        defaults = request_from_json(chosen_fields(timing_precision, speedup_kind, candidate_memory))
        with resumable(output), tasks.open("rb") as stream, ResultsFile(output) as results:
            judging = Judging(_filled(stream, defaults), _count_lines(tasks), results)
            judging.run(Service(address, local, devices, sandbox, lanes), window)
        if as_json:
            print_json({"requests": judging.total, "skipped": judging.skipped, "outcomes": dict(judging.outcomes)})
        else:
            before = f", {judging.skipped} of them judged before" if judging.skipped else ""
            stdout().print(summary_table(judging.outcomes, f"{judging.total} requests{before}"))
        if missing := judging.outcomes["INFRASTRUCTURE_ERROR"]:
            fail(
                f"{missing} of {judging.total} requests have no verdict (INFRASTRUCTURE_ERROR); "
                f"run the same command to try them again",
                NO_VERDICT,
            )


def _filled(stream: IO[bytes], defaults: EvalRequest) -> Iterator[EvalRequest | BadLine]:
    """Yields the lines of the file; requests get the fields of `defaults` that they leave open, and a label for reports."""
    for item in read_requests(stream):
        if isinstance(item, BadLine):
            yield item
            continue
        filled = EvalRequest()
        filled.CopyFrom(defaults)
        filled.MergeFrom(item)
        mark_reference(filled)
        yield filled


def _count_lines(path: Path) -> int:
    with path.open("rb", buffering=0) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b""))
