"""Shared by `batch` and `suite`: evaluate requests into a file of results, skip those with a verdict, show progress."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kerneldyno.cli.common import INTERRUPTED, Service, UsageError, fail, report_stalled, stderr
from kerneldyno.cli.results_file import NotResultsError, ResultsFile
from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.errors import UnavailableError
from kerneldyno.client.jsonl import BadLine
from kerneldyno.client.sources import in_turn
from kerneldyno.rpc.output_files import OutputLockedError
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult


class Judging:
    """One run: which requests are skipped and judged, and the counts."""

    def __init__(
        self,
        items: Iterable[EvalRequest | BadLine] | AsyncIterable[EvalRequest | BadLine],
        total: int | None,
        results: ResultsFile,
    ) -> None:
        """`total` is the number of items, for the progress bar; None if it is unknown."""
        self._items = items
        self._results = results
        self._total = total
        self._progress: Progress | None = None
        #: Outcomes of this run.
        self.judged: Counter[str] = Counter()
        #: Outcomes of earlier runs, for requests of this run that have not changed.
        self.kept: Counter[str] = Counter()
        #: Number of those that cannot be compared with their requests.
        self.not_compared = 0
        #: Number of requests that had a verdict, and now have another source or other settings.
        self.changed = 0

    @property
    def outcomes(self) -> Counter[str]:
        """Return the outcomes of all items, of this run or an earlier one."""
        return self.judged + self.kept

    def notes(self) -> list[str]:
        """Return notes on earlier verdicts that need an explanation."""
        notes = []
        if self.changed:
            notes.append(f"judged again, because a source or a setting has changed since the verdict: {self.changed}")
        if self.not_compared:
            notes.append(
                f"kept, although it is unknown whether the request has changed, because the result has no digest:"
                f" {self.not_compared}; give another --output to judge all again"
            )
        if others := len(self._results.earlier) - self.kept.total():
            notes.append(f"in the output, but not among the requests: {others}; they stay there and are not counted")
        return notes

    def run(self, service: Service, window: int) -> None:
        """Evaluate everything that has no verdict yet, with at most `window` requests in progress at once."""
        with service.open() as target, self._shown():
            asyncio.run(self._go(target, window))

    async def _go(self, address: str, window: int) -> None:
        async with AsyncClient(address, window=window, on_stalled=report_stalled) as client:
            await client.capabilities()  # fails at once, where evaluate() would wait for the scheduler
            async for result in client.evaluate(self._requests()):
                self._record(result)

    async def _requests(self) -> AsyncIterator[EvalRequest]:
        async for item in in_turn(self._items):
            if isinstance(item, BadLine):
                self._record(item.result())
            elif not self._is_judged(item):
                yield item

    def _is_judged(self, request: EvalRequest) -> bool:
        earlier = self._results.earlier.get(request.id)
        if earlier is None:
            return False
        if not earlier.answers(request):
            self.changed += 1
            return False
        self.kept[earlier.outcome] += 1
        self.not_compared += not earlier.digest
        self._advance()
        return True

    def _record(self, result: EvalResult) -> None:
        self._results.append(result)
        self.judged[EvalResult.Outcome.Name(result.outcome)] += 1
        self._advance()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Show a progress bar in a terminal, and nothing elsewhere."""
        console = stderr()
        if not console.is_terminal:
            yield
            return
        columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as self._progress:
            self._progress.add_task("judging", total=self._total)
            yield

    def _advance(self) -> None:
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0])


@contextmanager
def resumable(output: Path) -> Iterator[None]:
    """Add to an error that ends a run how to continue it."""
    try:
        yield
    except NotResultsError as error:
        raise UsageError(f"{error}; give another --output") from error
    except OutputLockedError as error:
        raise UsageError(f"{error}; wait for it, or give another --output") from error
    except OSError as error:
        raise UsageError(f"{error.filename or output}: {error.strerror or error}") from error
    except UnavailableError as error:
        raise UnavailableError(f"{error}; run the same command again to continue") from error
    except KeyboardInterrupt:
        fail(f"interrupted; finished results are in {output}; run the same command to continue", INTERRUPTED)
