"""Keep long texts (sources, logs, answers) within a budget of bytes: the longest are cut first.

Each text keeps its full size as a number. While texts are added, at most twice the budget is held; `settle` then cuts
to the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerneldyno.report.markup import visible

#: Longest text in bytes: browsers lay out this much without a noticeable pause.
MAX_TEXT_BYTES = 256 << 10


@dataclass(slots=True, eq=False)
class Kept:
    """A text, and the size in bytes of the whole text."""

    text: str
    size: int

    @property
    def is_cut(self) -> bool:
        """Return whether part of it is missing."""
        return _size(self.text) < self.size


class Shelf:
    """Texts that share a budget, in bytes of UTF-8."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._cap = min(MAX_TEXT_BYTES, budget)
        self._texts: dict[int, Kept] = {}
        self._held = 0

    def keep(self, text: str) -> Kept:
        """Keep a text, with its hidden characters made visible."""
        shown = visible(text)
        kept = Kept(_cut(shown, self._cap), _size(shown))
        self._texts[id(kept)] = kept
        self._held += _size(kept.text)
        while self._held > 2 * self._budget:
            self._cut_all(self._cap // 2)
        return kept

    def forget(self, kept: Kept) -> None:
        """Drop a text."""
        self._held -= _size(self._texts.pop(id(kept)).text)

    def settle(self) -> str:
        """Cut to the budget. Return a sentence about what is missing; "" if nothing is."""
        self._cut_all(min(self._cap, self._fitting()))
        missing = [kept for kept in self._texts.values() if kept.is_cut]
        if not missing:
            return ""
        return (
            f"{len(missing)} of {len(self._texts)} sources and other texts are longer than {self._cap} bytes and were cut "
            f"there, {sum(kept.size - _size(kept.text) for kept in missing)} bytes in all; --budget allows more"
        )

    def _fitting(self) -> int:
        """Return the largest cap with which all texts fit."""
        left = self._budget
        sizes = sorted(_size(kept.text) for kept in self._texts.values())
        for index, size in enumerate(sizes):
            share = left // (len(sizes) - index)
            if size > share:
                return share
            left -= size
        return self._cap

    def _cut_all(self, cap: int) -> None:
        self._cap = cap
        for kept in self._texts.values():
            kept.text = _cut(kept.text, cap)
        self._held = sum(_size(kept.text) for kept in self._texts.values())


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _cut(text: str, size: int) -> str:
    if len(text) <= size and _size(text) <= size:
        return text
    return text[:size].encode()[:size].decode(errors="ignore")
