"""`kerneldyno batch`: a file of requests in, a file of results out.

It may be stopped and started again at any time: what has a verdict is not evaluated again. Files are read and written
line by line; how many requests are under way is bounded by the client's window.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer
from kerneldyno.client.aio import DEFAULT_ADDRESS, AsyncClient
from kerneldyno.client.cli.cards import summary_table
from kerneldyno.client.cli.common import (
    INTERRUPTED,
    NO_VERDICT,
    Address,
    Devices,
    Json,
    Lanes,
    Local,
    Sandbox,
    Service,
    SpeedupKind,
    TimingPrecision,
    UsageError,
    fail,
    print_json,
    reporting,
    stderr,
    stdout,
    timing_fields,
)
from kerneldyno.client.errors import UnavailableError
from kerneldyno.client.jsonl import BadLine, NotResultsError, ResultsFile, read_requests
from kerneldyno.rpc.jsonio import request_from_json
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def batch(
    tasks: Annotated[Path, typer.Argument(metavar="TASKS.jsonl", help="One JSON object a line: a request each.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RESULTS.jsonl", help="One JSON line a result.")],
    window: Annotated[int, typer.Option("--window", min=1, help="Most requests under way at once.")] = 256,
    timing_precision: TimingPrecision = None,
    speedup_kind: SpeedupKind = None,
    address: Address = DEFAULT_ADDRESS,
    local: Local = False,
    devices: Devices = None,
    sandbox: Sandbox = None,
    lanes: Lanes = None,
    as_json: Json = False,
) -> None:
    """Judge every request of TASKS.jsonl. Run it again to go on where it stopped.

    --timing-precision and --speedup-kind are for requests that leave these fields open.
    """
    with reporting():
        defaults = request_from_json(timing_fields(timing_precision, speedup_kind))
        try:
            with tasks.open("rb") as stream, ResultsFile(output) as results:
                run = _Batch(stream, results, defaults)
                with Service(address, local, devices, sandbox, lanes).open() as target, run.progress(tasks):
                    asyncio.run(run.go(target, window))
        except NotResultsError as error:
            raise UsageError(f"{error}; give another --output") from error
        except OSError as error:
            raise UsageError(f"{error.filename or output}: {error.strerror or error}") from error
        except UnavailableError as error:
            raise UnavailableError(f"{error}; run the same command again to go on") from error
        except KeyboardInterrupt:
            fail(f"interrupted; what is finished is in {output}, run the same command to go on", INTERRUPTED)
        run.report(as_json)
        if missing := run.outcomes["INFRASTRUCTURE_ERROR"]:
            fail(
                f"{missing} of {run.total} requests have no verdict (INFRASTRUCTURE_ERROR); "
                f"run the same command to try them again",
                NO_VERDICT,
            )


class _Batch:
    """One run: what is read, skipped, judged and counted."""

    def __init__(self, stream: IO[bytes], results: ResultsFile, defaults: EvalRequest) -> None:
        """`defaults` has the fields of requests that leave them open."""
        self._stream = stream
        self._results = results
        self._defaults = defaults
        self._progress: Progress | None = None
        self._skipped = 0
        self.outcomes: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Lines that were dealt with, in this run or an earlier one."""
        return self.outcomes.total() + self._skipped

    async def go(self, address: str, window: int) -> None:
        """Evaluates everything that has no verdict yet."""
        async with AsyncClient(address, window=window) as client:
            await client.capabilities()  # fails at once where evaluate() would wait for a scheduler to come back
            async for result in client.evaluate(self._requests()):
                self._record(result)

    async def _requests(self) -> AsyncIterator[EvalRequest]:
        for item in read_requests(self._stream):
            if isinstance(item, BadLine):
                self._record(item.result())
            elif item.id in self._results.done:
                self._skipped += 1
                self._advance()
            else:
                yield self._filled(item)
            await asyncio.sleep(0)  # reading must not keep results from being written

    def _filled(self, request: EvalRequest) -> EvalRequest:
        if not self._defaults.ListFields():
            return request
        filled = EvalRequest()
        filled.CopyFrom(self._defaults)
        filled.MergeFrom(request)
        return filled

    def _record(self, result: EvalResult) -> None:
        self._results.append(result)
        self.outcomes[EvalResult.Outcome.Name(result.outcome)] += 1
        self._advance()

    def report(self, as_json: bool) -> None:
        """Prints how it went."""
        if as_json:
            print_json({"requests": self.total, "skipped": self._skipped, "outcomes": dict(self.outcomes)})
            return
        title = f"{self.total} requests" + (f", {self._skipped} of them judged before" if self._skipped else "")
        stdout().print(summary_table(self.outcomes, title))

    @contextmanager
    def progress(self, tasks: Path) -> Iterator[None]:
        """Shows a progress bar in a terminal, and nothing elsewhere."""
        console = stderr()
        if not console.is_terminal:
            yield
            return
        columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as self._progress:
            self._progress.add_task("judging", total=_count_lines(tasks))
            yield

    def _advance(self) -> None:
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0])


def _count_lines(path: Path) -> int:
    with path.open("rb", buffering=0) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b""))
