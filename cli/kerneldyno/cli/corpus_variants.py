"""How one file of the corpus lists several candidates: the first in full, and what differs in each of the others.

A file without a line that begins with `# Above is` is one candidate, named as the file is. With this line, what stands
above it is the first candidate, and comments below it list variants:

    # Above is T15_counter_1. Variants, with what differs:
    #
    # T15_counter_4: right for the first 4 calls, then nothing.
    #   outcome: INCORRECT, REJECTED, CORRECT
    #   -         if self.calls <= 1:
    #   +         if self.calls <= 4:

`expand` makes the complete source of each. It works on text only; kerneldyno.cli.corpus reads files and headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: Keys of a header, in their order.
KEYS = ("problem", "answer", "backend", "outcome", "honest", "devices", "request", "finding")
_ABOVE = "# Above is "
_FIRST = re.compile(r"# Above is (\w+)\. Variants, with what differs:")
_HEADING = re.compile(r"# (\w+): (\S.*)")
#: What the lines of a variant below its heading begin with.
_INDENT = "#   "
_DOCSTRING = re.compile(r'\s*"""(.*?)"""', re.DOTALL)
_KEY_LINE = re.compile(r"([a-z]+):\s*(.*)")
_TITLE_ID = re.compile(r"[A-Z][0-9]{2}[^:]*:\s*")
_FILE_ID = re.compile(r"[A-Z][0-9]{2}_")


class CorpusError(ValueError):
    """A corpus file is malformed, or the corpus does not exist."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """The three parts of a candidate's docstring."""

    title: str
    #: Lines between title and keys, with the empty ones around them.
    explanation: tuple[str, ...]
    keys: dict[str, str]


@dataclass(slots=True)
class _Variant:
    """One variant as the file lists it."""

    name: str
    title: str
    explanation: list[str] = field(default_factory=list)
    #: Lines with a sign, `-` or `+`, in their order.
    changes: list[str] = field(default_factory=list)


def expand(stem: str, text: str) -> dict[str, str]:
    """Return the sources of the candidates in one file by their names, the first one first.

    Args:
        stem: name of the file, without its suffix.
        text: contents of the file.

    Raises:
        CorpusError: the list of variants is malformed.
    """
    lines = text.split("\n")
    begins = [number for number, line in enumerate(lines) if line.startswith(_ABOVE)]
    if not begins:
        return {stem: text}
    if len(begins) > 1:
        raise CorpusError(f"{stem}.py: has {len(begins)} lists of variants; put all into one, at the end")
    first = _FIRST.fullmatch(lines[begins[0]])
    if first is None:
        raise CorpusError(
            f"{stem}.py: write the first line of the list as '# Above is NAME. Variants, with what differs:'"
        )
    base = "\n".join(lines[: begins[0]]).rstrip("\n") + "\n"
    sources = {_checked(first[1], stem): base}
    for variant in _variants(stem, lines[begins[0] + 1 :]):
        if _checked(variant.name, stem) in sources:
            raise CorpusError(f"{stem}.py: {variant.name} is listed twice; give one another name")
        sources[variant.name] = _source(stem, base, variant)
    if len(sources) == 1:
        raise CorpusError(f"{stem}.py: lists no variants; add one, or remove '{lines[begins[0]]}'")
    return sources


def docstring(source: str, name: str) -> Docstring:
    """Return the parts of the docstring that `source` begins with.

    Raises:
        CorpusError: there is none, or it has a key that no header has. The message begins with `name`.
    """
    found = _DOCSTRING.match(source)
    if found is None:
        raise CorpusError(f"{name}: must begin with a docstring")
    lines = found[1].strip().splitlines() or [""]
    keys, begin = _trailing_keys(lines[1:], name)
    return Docstring(lines[0].strip(), tuple(lines[1 : 1 + begin]), keys)


def _checked(name: str, stem: str) -> str:
    """Return the name of a candidate in a list if it has the same id as its file, and another name."""
    catalogued = _FILE_ID.match(stem)
    if catalogued and not name.startswith(catalogued[0]):
        raise CorpusError(f"{stem}.py: {name} must begin with {catalogued[0]} as the file does; rename or move it")
    if name == stem:
        raise CorpusError(f"{stem}.py: a candidate in it has the same name; rename the file")
    return name


def _variants(stem: str, lines: Sequence[str]) -> Iterator[_Variant]:
    """Read the list below its first line."""
    current: _Variant | None = None
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            if current is not None:
                yield current
            current = _Variant(heading[1], heading[2])
        elif line.startswith(_INDENT) and current is not None:
            detail = line[len(_INDENT) :]
            if detail[:2] in ("-", "+", "- ", "+ "):
                current.changes.append(detail)
            elif current.changes:
                raise CorpusError(f"{stem}.py: {current.name}: {detail!r} must stand above the lines with - and +")
            else:
                current.explanation.append(detail)
        elif line == "#" and current is not None and not current.changes:
            current.explanation.append("")  # between two paragraphs, or before the next variant
        elif line not in ("", "#"):
            raise CorpusError(
                f"{stem}.py: {line!r} is not a line of a list of variants; write '# NAME: title', and below it"
                " '#   ' with an explanation, key: value, or - and + lines"
            )
    if current is not None:
        yield current


def _source(stem: str, base: str, variant: _Variant) -> str:
    """Return the source of one variant."""
    where = f"{stem}.py: {variant.name}"
    inherited = docstring(base, f"{stem}.py")
    own = "\n".join(variant.explanation).strip("\n").splitlines()
    keys, begin = _trailing_keys(own, where)
    explanation = "\n".join(own[:begin]).strip("\n").splitlines()
    if not (keys or explanation or variant.changes):
        raise CorpusError(f"{where}: differs in nothing but its title; add what differs, or remove it")
    prefix = _TITLE_ID.match(inherited.title)
    lines = [
        f"{prefix[0] if prefix else ''}{variant.title}",
        *(["", *explanation, ""] if explanation else inherited.explanation),
        *(f"{key}: {value}" for key, value in sorted((inherited.keys | keys).items(), key=_order)),
    ]
    found = _DOCSTRING.match(base)
    assert found is not None
    return '"""' + "\n".join(lines) + '\n"""' + _replace(where, base[found.end() :], variant.changes)


def _order(item: tuple[str, str]) -> int:
    return KEYS.index(item[0])


def _replace(where: str, code: str, changes: Sequence[str]) -> str:
    """Return the code of a variant: each group of `-` lines replaced by the `+` lines below it."""
    lines = code.split("\n")
    places: list[tuple[int, int, list[str]]] = []
    for old, new in _groups(changes):
        if not old:
            raise CorpusError(
                f"{where}: {new[0].strip()!r} is put in nowhere; write a - line above it, which it replaces"
            )
        at = [number for number in range(len(lines)) if lines[number : number + len(old)] == old]
        if len(at) != 1:
            advice = "copy them as they are above" if not at else "add a line beside them to both, to choose one place"
            raise CorpusError(f"{where}: the - lines that begin with {old[0]!r} occur {len(at)} times; {advice}")
        places.append((at[0], at[0] + len(old), new))
    places.sort(key=lambda place: place[0])
    for (_, end, _), (begin, _, _) in pairwise(places):
        if begin < end:
            raise CorpusError(f"{where}: two groups of - lines overlap at {lines[begin]!r}; write them as one")
    for begin, end, new in reversed(places):
        lines[begin:end] = new
    return "\n".join(lines)


def _groups(changes: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the lines of each replacement: those taken out, and those put in."""
    old: list[str] = []
    new: list[str] = []
    for change in changes:
        if change[0] == "-" and new:
            yield old, new
            old, new = [], []
        (old if change[0] == "-" else new).append(change[2:])
    if old or new:
        yield old, new


def _trailing_keys(lines: Sequence[str], where: str) -> tuple[dict[str, str], int]:
    """Return the keys at the end of `lines`, in their order, and the number of the line that they begin at."""
    keys: dict[str, str] = {}
    begin = len(lines)
    while begin and (found := _KEY_LINE.fullmatch(lines[begin - 1].strip())):
        if found[1] not in KEYS:
            raise CorpusError(f"{where}: unknown key {found[1]!r}; choose one of {', '.join(KEYS)}")
        keys[found[1]] = found[2].strip()
        begin -= 1
    return dict(reversed(keys.items())), begin
