"""Make a page from files: read, join, count, write. `kerneldyno report` and `kerneldyno suite` call this."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime

from kerneldyno.client.problem_names import PROBLEM_LABEL
from kerneldyno.report.candidates import Candidate
from kerneldyno.report.figures import Figures, figures
from kerneldyno.report.joining import References, join
from kerneldyno.report.page import Heading, page
from kerneldyno.report.reading import Recorded, read
from kerneldyno.report.shelf import Shelf
from kerneldyno.rpc.version import VERSION

_MIB = 1 << 20


@dataclass(slots=True)
class Material:
    """The contents of a report."""

    recorded: Recorded
    references: References
    figures: Figures
    notes: list[str]

    @property
    def candidates(self) -> list[Candidate]:
        """Return every verdict."""
        return self.recorded.candidates

    def page(self, title: str, source: str) -> str:
        """Return the page as HTML; `source` is the name of the input file."""
        heading = Heading(title=title, source=source, version=VERSION, made=datetime.now(UTC))
        return page(heading, self.figures, self.candidates, self.references, self.notes)


class Gatherer:
    """Gather the material of one report: first results, then their requests, if there are any."""

    def __init__(self, budget_mib: int = 64) -> None:
        """Set the most MiB of sources, logs and answers that the page may hold."""
        self._shelf = Shelf(budget_mib * _MIB)
        self._recorded = Recorded()

    def results(self, stream: io.BufferedReader, problem_label: str = PROBLEM_LABEL, group_label: str = "") -> None:
        """Read results or trajectories.

        Args:
            stream: the file.
            problem_label: label of results that names their problem.
            group_label: label of results that names the group of their problem; "" for none.

        Raises:
            ReportInputError, OSError: as for `reading.read`.
        """
        self._recorded = read(stream, self._shelf, problem_label, group_label)

    def finish(self, requests: io.BufferedReader | None = None) -> Material:
        """Join the results with their requests, and count.

        Raises:
            OSError: reading fails (EOFError: a compressed file is cut off).
        """
        recorded = self._recorded
        references = join(recorded.candidates, requests, self._shelf)
        notes = [*recorded.notes, *references.notes, *filter(None, [self._shelf.settle()])]
        return Material(recorded, references, figures(recorded.candidates, recorded.turns), notes)
