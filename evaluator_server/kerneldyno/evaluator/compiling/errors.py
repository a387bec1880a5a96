"""Could a build that failed with lean headers succeed with all of them? Usually not: most errors are the candidate's.

Trying costs a minute of processor time, so this looks at the first error of the compilers. It is surely the
candidate's if no further declaration could mend it: something is defined twice; a name is unknown that torch's headers
do not have, or have only in namespaces that the candidate does not use; the grammar is violated on a line without
macros. In every other case all headers are tried.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: The first line of an error, as nvcc's front ends and gcc write it.
_ERROR = re.compile(
    r"^(?P<file>[^\s:(]+)(?:\((?P<nvcc>\d+)\)|:(?P<gcc>\d+)(?::\d+)?): (?:fatal )?error:? (?P<text>.*)$", re.MULTILINE
)
#: Only of names without a namespace: a message about another begins with "'at::f'", or says "'f' in namespace 'at'".
_UNKNOWN = re.compile(
    r"(?:#\S+ )?identifier .(\w+). is undefined"
    r"|.(\w+). (?:was not declared in this scope|does not name a type|has not been declared)"
)
#: Beginnings of global names that only all headers declare: the processor's functions, and Python's and PyTorch's in C.
_DECLARED_ELSEWHERE = ("_", "Py", "THP")
_TWICE = re.compile(r"redefinition of |.* has already been defined|conflicting declaration ")
_USING = re.compile(r"\busing\s+(namespace\b|[\w:]+::)|\bnamespace\s+(at|torch|c10)\b")
_GRAMMAR = re.compile(r"expected |unrecognized token|missing closing quote|unterminated|stray ")
_MACRO = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
_SEARCH_SECONDS = 20.0


def is_certainly_own(log: str, files: dict[str, str], headers: Sequence[Path]) -> bool:
    """Return True if all headers would not help.

    Args:
        log: The compilers' messages.
        files: The candidate's files by name.
        headers: torch's include directories.
    """
    first = _ERROR.search(log)
    if first is None:
        return False
    lines = files.get(Path(first["file"]).name, "").splitlines()
    if not lines:
        return False
    number = int(first["nvcc"] or first["gcc"])
    around = "\n".join(lines[max(0, number - 2) : number])
    if unknown := _UNKNOWN.match(first["text"]):
        name = unknown[1] or unknown[2]
        if name.startswith(_DECLARED_ELSEWHERE):
            return False
        # A function may be found in the namespace of its arguments. Other names must be macros or global: torch has none
        # of those but macros.
        everywhere = re.search(rf"\b{name}\s*\(", around) or any(map(_USING.search, files.values()))
        return not _occurs(name if everywhere else f"define {name}", headers)
    if _TWICE.match(first["text"]):
        return True
    return bool(_GRAMMAR.match(first["text"]) and not _MACRO.search(around))


def _occurs(words: str, headers: Sequence[Path]) -> bool:
    """Return True if words occur in a header, or if that could not be found out."""
    command = ["grep", "-rqwF", "--include=*.h", "--include=*.cuh", words, *map(str, headers)]
    try:
        return subprocess.run(command, timeout=_SEARCH_SECONDS, check=False).returncode != 1
    except (OSError, subprocess.TimeoutExpired):
        return True
