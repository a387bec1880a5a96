"""Standard output that is not a terminal: a file, or a pipe to another program."""

from __future__ import annotations

from typing import Any

from rich.console import Console

#: Columns, more than any row needs: rich folds wider rows, and by default takes 80 for a pipe.
_WIDTH = 100_000


class PipedConsole(Console):
    """Print each row of a table on one line, as wide as it is: nothing is folded, cut or padded at its end."""

    def __init__(self) -> None:
        super().__init__(highlight=False, width=_WIDTH)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich's console does, but without trailing spaces."""
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
        self.file.flush()
