"""Tracebacks for people: only the lines of the source that raised, without our frames and those of libraries."""

from __future__ import annotations

import linecache
import os
import traceback
from dataclasses import dataclass

from .wire import Frame

#: File name of the candidate's source in messages and tracebacks.
CANDIDATE_FILE = "candidate.py"
#: Longest traceback and longest message that are kept, in characters: models have limited context.
MAX_TRACEBACK = 8 * 1024
MAX_MESSAGE = 4 * 1024
_MAX_FRAMES = 20
_MAX_CAUSES = 8


@dataclass(frozen=True, slots=True)
class ErrorDescription:
    """An exception as text: its class, the names of that class and of all its bases, its message, its traceback."""

    type: str
    bases: tuple[str, ...]
    message: str
    traceback: str

    @classmethod
    def from_json(cls, said: Frame) -> ErrorDescription:
        """Read what `dataclasses.asdict` made in a trusted process. Raises KeyError if a part is missing."""
        bases = tuple(map(str, said["bases"]))
        return cls(str(said["type"]), bases, str(said["message"]), str(said["traceback"]))


def describe_error(error: BaseException, filename: str) -> ErrorDescription:
    """Return type, base classes, message and cleaned traceback of `error`.

    Args:
        error: The exception.
        filename: File name of the source whose lines are kept.
    """
    return ErrorDescription(
        type=type(error).__name__,
        bases=tuple(base.__name__ for base in type(error).__mro__),
        message=_message(error)[:MAX_MESSAGE],
        traceback=own_lines(error, filename)[-MAX_TRACEBACK:],
    )


def own_lines(error: BaseException, filename: str) -> str:
    """Format `error` and its causes with only the frames of `filename`: the lines that its author can change."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _MAX_CAUSES:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__)
        lines = [_format(frame, filename) for frame in frames if os.path.basename(frame.filename) == filename]
        if len(lines) > _MAX_FRAMES:  # recursion: the first and last frames explain it
            lines = [*lines[:3], f"  [... {len(lines) - _MAX_FRAMES} frames left out ...]\n", *lines[3 - _MAX_FRAMES :]]
        if isinstance(current, SyntaxError) and current.lineno is not None:
            lines.append(f'  File "{filename}", line {current.lineno}\n    {(current.text or "").strip()}\n')
        if not lines and frames:
            lines.append(f"  (in {os.path.basename(frames[-1].filename)}, {frames[-1].name})\n")
        head = "Traceback (own lines only):\n" if lines else ""
        parts.append(f"{head}{''.join(lines)}{type(current).__name__}: {_message(current)[:MAX_MESSAGE]}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\ncaused by:\n".join(parts)


def _format(frame: traceback.FrameSummary, filename: str) -> str:
    source = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f'  File "{filename}", line {frame.lineno}, in {frame.name}\n    {source}\n'


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a candidate may raise an exception that cannot be printed
        return "(its message could not be formatted)"
