"""From files to a page: read, join, count, write. Called by `kerneldyno report` and `kerneldyno suite`."""

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
    """What a report is made of."""

    recorded: Recorded
    references: References
    figures: Figures
    notes: list[str]

    @property
    def candidates(self) -> list[Candidate]:
        """Every verdict."""
        return self.recorded.candidates

    def page(self, title: str, source: str) -> str:
        """The page as HTML; `source` is the name of the file that it is made of."""
        heading = Heading(title=title, source=source, version=VERSION, made=datetime.now(UTC))
        return page(heading, self.figures, self.candidates, self.references, self.notes)


class Gatherer:
    """Gathers the material of one report: results first, then their requests, if there are any."""

    def __init__(self, budget_mib: int = 64) -> None:
        """`budget_mib`: most sources, logs and answers that the page may hold."""
        self._shelf = Shelf(budget_mib * _MIB)
        self._recorded = Recorded()

    def results(self, stream: io.BufferedReader, problem_label: str = PROBLEM_LABEL, group_label: str = "") -> None:
        """Read results or trajectories; labels as `read` takes them. Raises ReportInputError, OSError."""
        self._recorded = read(stream, self._shelf, problem_label, group_label)

    def finish(self, requests: io.BufferedReader | None = None) -> Material:
        """Join what was read with its requests, and count. Raises OSError (EOFError: a compressed file is cut off)."""
        recorded = self._recorded
        references = join(recorded.candidates, requests, self._shelf)
        notes = [*recorded.notes, *references.notes, *filter(None, [self._shelf.settle()])]
        return Material(recorded, references, figures(recorded.candidates, recorded.turns), notes)
