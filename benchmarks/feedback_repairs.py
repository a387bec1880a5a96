"""Repairs of the scripted model of benchmarks/feedback.py: each makes programs with one change from a program.

An engineer tries such repairs on a GPU kernel: rename, import, close a bracket, mask, pad, subtract the maximum, and so
on. Each repair reads only the text of the program, and is offered wherever its construct occurs, also where nothing is
wrong. The policy (feedback_policy.py) decides which one to try, and when.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a program."""

    kind: str
    """Which repair it is, for example "mask": the rules of the policy speak of kinds."""
    line: int
    """The first line that it changes, from 1."""
    removed: str
    """The name that it takes away, where it is a renaming; else empty."""
    added: str
    """The name that it brings, where it brings one; else empty."""
    source: str
    """The whole program afterwards."""


#: Similarity (of difflib) from which one name counts as a misspelling of another.
_ALIKE = 0.8
#: Names that a program may use without defining them.
_LIBRARY = (
    "arange", "cdiv", "constexpr", "contiguous", "empty", "empty_like", "exp", "float32", "load", "maximum", "rsqrt",
    "next_power_of_2", "program_id", "reshape", "sigmoid", "store", "where", "zeros",
    "LayerNorm", "Linear", "Module", "Parameter",
)  # fmt: skip
_IMPORTS = (
    "import math",
    "import torch",
    "import triton",
    "import triton.language as tl",
    "from torch.nn import functional as F",
)
_KEYWORDS = re.compile(
    r"^(def|class|if|for|while|else|elif|with|return|import|from|in|and|or|not|None|True|False|self|super|as)$"
)


@lru_cache(maxsize=4096)
def edits(source: str) -> tuple[Edit, ...]:
    """Return all changes for `source`, in a stable order, without duplicates and without empty changes."""
    found = [*_renamings(source), *_columns(source), *_line_changes(source), *_imports(source), *_arguments(source)]
    unique = {edit.source: edit for edit in reversed(found) if edit.source != source}
    return tuple(sorted(unique.values(), key=lambda edit: (edit.line, edit.kind, edit.added, edit.source)))


def _renamings(source: str) -> Iterator[Edit]:
    """Replace a name by a similar one from the program or a library."""
    lines = source.splitlines(keepends=True)
    known = {*_LIBRARY, *(name for name in re.findall(r"[A-Za-z_]\w*", source) if not _KEYWORDS.match(name))}
    for number, line in enumerate(lines, 1):
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", line)):
            if _KEYWORDS.match(name) or len(name) < 3:
                continue
            for other in difflib.get_close_matches(name, sorted(known - {name}), n=2, cutoff=_ALIKE):
                renamed = re.sub(rf"\b{name}\b", other, line)
                yield Edit("rename", number, name, other, _with_line(lines, number, renamed))


def _columns(source: str) -> Iterator[Edit]:
    """Turn a vector in a kernel (a name or the result of a call) into a column."""
    lines = source.splitlines(keepends=True)
    end = source.find("class ")
    in_kernels = source[:end].count("\n") if end > 0 else 0
    for number, line in enumerate(lines[:in_kernels], 1):
        text = line.split("=", 1)[-1]
        for place in re.finditer(r"(?:\b[a-z]+|axis=1\)|eps\))(?= [*+/<-] |,|\)|$)", text):
            at = len(line) - len(text) + place.end()
            yield Edit("column", number, "", "", _with_line(lines, number, f"{line[:at]}[:, None]{line[at:]}"))


def _imports(source: str) -> Iterator[Edit]:
    for wanted in _IMPORTS:
        if wanted not in source:
            yield Edit("import", 1, "", wanted.split()[-1], f"{wanted}\n{source}")


def _arguments(source: str) -> Iterator[Edit]:
    """Pass one more of a kernel's parameters in its launch, before `BLOCK=`."""
    lines = source.splitlines(keepends=True)
    for kernel, parameters in re.findall(r"def (\w+_kernel)\(([^)]*)\)", source):
        names = [one.split(":")[0].strip() for one in parameters.split(",") if "constexpr" not in one]
        for number, line in enumerate(lines, 1):
            if f"{kernel}[" not in line or ", BLOCK=" not in line:
                continue
            for name in names:
                if name and not name.endswith("_ptr"):
                    changed = line.replace(", BLOCK=", f", {name}, BLOCK=", 1)
                    yield Edit("argument", number, "", name, _with_line(lines, number, changed))


def _line_changes(source: str) -> Iterator[Edit]:
    lines = source.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        for kind, change in _CHANGES:
            if (changed := change(line)) != line:
                yield Edit(kind, number, "", "", _with_line(lines, number, changed))


def _with_line(lines: list[str], number: int, changed: str) -> str:
    return "".join([*lines[: number - 1], changed, *lines[number:]])


def _replace(pattern: str, with_: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)
    return lambda line: compiled.sub(with_, line, count=1)


def _close(line: str) -> str:
    """Close a bracket: before an argument that belongs to the outer call, or at the end of the line."""
    if line.count("(") <= line.count(")"):
        return line
    outer = re.compile(r", (mask|dim|axis)=")
    return outer.sub(r"), \1=", line, count=1) if outer.search(line) else f"{line.rstrip()})\n"


def _colon(line: str) -> str:
    text = line.rstrip()
    return f"{text}:\n" if re.match(r"\s*(def|class|for|if|with) ", text) and text[-1] not in ":,(" else line


def _drop(pattern: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)
    return lambda line: "" if compiled.search(line) else line


def _masked(line: str) -> str:
    """Mask a load by the plural of its last index: part < parts."""
    return re.sub(r"tl\.load\((\w+ \+ (\w+))\)", r"tl.load(\1, mask=\2 < \2s)", line, count=1)


def _whole(line: str) -> str:
    """Replace a loop over many parts by a loop over one."""
    return re.sub(r"\.chunk\((?!1\))\d+\)", ".chunk(1)", line)


#: Repairs that change one line, by kind. A kind may occur more than once.
_CHANGES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("close", _close),
    ("colon", _colon),
    ("constexpr", _replace(r"\b([A-Z]+)(?=[,)])(?!: tl)", r"\1: tl.constexpr")),
    ("power of two", _replace(r"^(\s+block = )(?!triton\.next)(\w+)$", r"\1triton.next_power_of_2(\2)")),
    ("contiguous", _replace(r"\.view\(", ".reshape(")),
    # Repairs of wrong values.
    ("overflow", _replace(r"tl\.exp\((\w+)\)", r"tl.exp(\1 - tl.max(\1, axis=1)[:, None])")),
    ("overflow", _replace(r"torch\.exp\((\w+)\)", r"torch.exp(\1 - \1.amax(dim=-1, keepdim=True))")),
    ("overflow", _replace(r"(\w+) \* tl\.sigmoid\(", r"\1.to(tl.float64) * tl.sigmoid(")),
    ("padding", _replace(r"other=0\.0", 'other=-float("inf")')),
    ("padding", _replace(r'other=-float\("inf"\)', "other=0.0")),
    ("start", _replace(r"tl\.zeros\((\([^)]*\)), (tl\.\w+)\)", r'tl.full(\1, -float("inf"), \2)')),
    ("grid", _replace(r"\((\w+) - 1\) // (\w+)", r"triton.cdiv(\1, \2)")),
    ("grid", _replace(r"triton\.cdiv\((\w+), (\w+)\)", r"triton.cdiv(\1, \2) + 1")),
    ("mask", _replace(r"< (\w+) - 1\b", r"< \1")),
    ("mask", _replace(r"< (count|rows|columns|features)$", r"<= \1")),
    ("dimension", _replace(r", keepdim=True", "")),
    ("dimension", _replace(r"\.mean\(dim=(-?\d)\)", r".mean(dim=\1, keepdim=True)")),
    ("dtype", _replace(r", dtype=torch\.float16", "")),
    ("dtype", _replace(r"torch\.empty_like\((\w+)\)", r"torch.empty_like(\1, dtype=torch.float32)")),
    ("precision", _replace(r"\.to\(tl\.float16\)", "")),
    ("precision", _replace(r"tl\.sum\((\w+) \* (\w+),", r"tl.sum((\1 * \2).to(tl.float64),")),
    ("parameters", _replace(r", normal, mask", ", normal * weight[None, :] + bias[None, :], mask")),
    ("parameters", _replace(r"\* (scale|tl\.rsqrt\([^)]*\))(\S*) \* (\S*weight\S*)", r"* \1\2")),
    ("divisor", _replace(r"/ \((\w+) - 1\)", r"/ \1")),
    ("divisor", _replace(r"/ (features|columns|count)\b", r"/ (\1 - 1)")),
    ("epsilon", _replace(r"tl\.rsqrt\((\w+)\)", r"tl.rsqrt(\1 + eps)")),
    ("epsilon", _replace(r"torch\.rsqrt\((\w+)\)", r"torch.rsqrt(\1 + self.eps)")),
    ("epsilon", _replace(r"/ (\w+)\.sum\(([^)]*)\)", r"/ (\1.sum(\2) + 1e-6)")),
    ("uninitialised", _replace(r"torch\.empty\(", "torch.zeros(")),
    ("uninitialised", _replace(r"torch\.empty_like\(", "torch.zeros_like(")),
    ("in place", _replace(r"\.(\w+[a-z])_\(", r".\1(")),
    ("in place", _replace(r"= x\.contiguous\(\)", "= x.clone()")),
    ("sign", _replace(r"\.abs\(\)", "")),
    ("sign", _replace(r"tl\.maximum\((\w+), 0\.0\)", r"tl.abs(\1)")),
    ("structure", _replace(r"return (\w+), \w+$", r"return \1")),
    ("structure", _replace(r"return (\w+)$", r"return (\1,)")),
    ("axis", _replace(r"(dim|axis)=1\b", r"\1=0")),
    ("axis", _replace(r"(dim|axis)=0\b", r"\1=1")),
    # Repairs of errors of memory and of first calls.
    ("bound", _replace(r"<= (count|rows|columns|features)\b", r"< \1")),
    ("load mask", _masked),
    ("fewer programs", _replace(r"\((\w+) \+ 1,\)", r"(\1,)")),
    ("barrier", _replace(r"^(\s+)(.*\[.*\] = .*;\n)$", r"\1\2\1__syncthreads();\n")),
    ("barrier for all", _replace(r"if \([^()]*\) __syncthreads\(\);", "__syncthreads();")),
    ("scratch", _replace(r"\bout, count\)$", "torch.zeros_like(out), count)")),
    # Repairs of slow programs.
    ("larger block", _replace(r"\b32(\),\)\].*BLOCK=)32\b", r"16384\g<1>16384")),
    ("larger block", _replace(r"\b16384(\),\)\].*BLOCK=)16384\b", r"1024\g<1>1024")),
    ("warps", _replace(r"num_warps=8", "num_warps=4")),
    ("warps", _replace(r"num_warps=1\b", "num_warps=8")),
    ("smaller tile", _replace(r"\b64(\),\)\].*ROWS=)64\b", r"16\g<1>16")),
    ("smaller tile", _replace(r"\b(16|32)(\),\)\].*ROWS=)\1\b", r"8\g<2>8")),
    ("fewer stages", _replace(r"num_stages=\d+, ", "")),
    ("one pass", _drop(r"_kernel\[.*\]\(out, out,")),
    ("fewer copies", _replace(r"(\.clone\(\))+", "")),
    ("no waiting", _drop(r"\.item\(\)")),
    ("one launch", _whole),
    ("no double", _drop(r"\.to\(tl\.float64\)$")),
    ("fewer operators", _drop(r"x = x\.abs\(\) \* x\.sign\(\)")),
)
