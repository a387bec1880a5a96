"""What `batch` and `suite` share: requests in, results into a file, what has a verdict skipped, progress shown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kerneldyno.client.aio import AsyncClient
from kerneldyno.client.cli.common import INTERRUPTED, Service, UsageError, fail, say_stalled, stderr
from kerneldyno.client.errors import UnavailableError
from kerneldyno.client.jsonl import BadLine, NotResultsError, ResultsFile
from kerneldyno.v1.evaluation_pb2 import EvalRequest, EvalResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Judging:
    """One run: what is skipped, judged and counted."""

    def __init__(self, items: Iterable[EvalRequest | BadLine], total: int, results: ResultsFile) -> None:
        """`total` is how many items there are, for the progress bar."""
        self._items = items
        self._results = results
        self._total = total
        self._progress: Progress | None = None
        self.skipped = 0
        self.outcomes: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Items that were dealt with, in this run or an earlier one."""
        return self.outcomes.total() + self.skipped

    def run(self, service: Service, window: int) -> None:
        """Evaluates everything that has no verdict yet; at most `window` requests are under way at once."""
        with service.open() as target, self._shown():
            asyncio.run(self._go(target, window))

    async def _go(self, address: str, window: int) -> None:
        async with AsyncClient(address, window=window, on_stalled=say_stalled) as client:
            await client.capabilities()  # fails at once where evaluate() would wait for a scheduler to come back
            async for result in client.evaluate(self._requests()):
                self._record(result)

    async def _requests(self) -> AsyncIterator[EvalRequest]:
        for item in self._items:
            if isinstance(item, BadLine):
                self._record(item.result())
            elif item.id in self._results.done:
                self.skipped += 1
                self._advance()
            else:
                yield item
            await asyncio.sleep(0)  # reading must not keep results from being written

    def _record(self, result: EvalResult) -> None:
        self._results.append(result)
        self.outcomes[EvalResult.Outcome.Name(result.outcome)] += 1
        self._advance()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows a progress bar in a terminal, and nothing elsewhere."""
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
    """Says of what ends a run how to go on with it."""
    try:
        yield
    except NotResultsError as error:
        raise UsageError(f"{error}; give another --output") from error
    except OSError as error:
        raise UsageError(f"{error.filename or output}: {error.strerror or error}") from error
    except UnavailableError as error:
        raise UnavailableError(f"{error}; run the same command again to go on") from error
    except KeyboardInterrupt:
        fail(f"interrupted; what is finished is in {output}, run the same command to go on", INTERRUPTED)
