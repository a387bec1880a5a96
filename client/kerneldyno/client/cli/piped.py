"""Standard output that is not a terminal: a file, or a pipe to grep."""

from __future__ import annotations

from typing import Any

from rich.console import Console

#: Columns, more than any row needs: rich folds what is wider, and its own choice for a pipe is 80.
_WIDTH = 100_000


class PipedConsole(Console):
    """Print each row of a table on one line, as wide as it is: nothing is folded, cut or padded at its end."""

    def __init__(self) -> None:
        super().__init__(highlight=False, width=_WIDTH)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich's console does, without the spaces that fill a line up."""
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
        self.file.flush()
