"""Name problems: by a label, by the file of their reference, or by the ids of their candidates.

Names have groups, as KernelBench has levels: "level1/19_ReLU" is in group "level1".
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerneldyno.rpc.validation import MAX_LABEL_CHARS, MAX_LABELS
from kerneldyno.v1.evaluation_pb2 import EvalRequest

#: Label of a request, and so of its result, that names its problem.
PROBLEM_LABEL = "problem"
#: Label with a digest of the reference, by which a report groups results of a problem without a name.
REFERENCE_LABEL = "kerneldyno.reference"
#: File names that describe a file's role; its folder then has the problem's name.
_ROLES = ("reference", "problem", "model", "ref")
_SEPARATED = re.compile(r"(.+)[\W_]")
#: Names that KernelBench's scripts give generated kernels: level_1_problem_19_sample_0.
_GENERATED = re.compile(r"(level_?\d+)_problem_?\d+")


def group_of(name: str) -> str:
    """Return the group of a problem's name, the part before its last slash: "level1"; "" if it has none.

    For names from KernelBench's scripts, "level_1_problem_19", it is the level.
    """
    if generated := _GENERATED.match(name):
        return generated[1]
    return name.rpartition("/")[0]


def name_of_file(reference: Path) -> str:
    """Return the name of a problem from the file of its reference; "" if that cannot be a label."""
    path = reference.absolute()
    name = path.parent.name if path.stem in _ROLES else path.stem
    return name if name.isprintable() and len(name) <= MAX_LABEL_CHARS else ""


def reference_key(request: EvalRequest) -> str:
    """Return 16 digits that identify the reference (or the cases) of a request; "" if it has none."""
    reference = request.reference_code or request.cases_code
    return hashlib.sha256(reference.encode(errors="replace")).hexdigest()[:16] if reference else ""


def mark_reference(request: EvalRequest) -> None:
    """Add the label of its reference to a request that does not name its problem, if it may have another label."""
    key = reference_key(request)
    if key and PROBLEM_LABEL not in request.labels and len(request.labels) < MAX_LABELS:
        request.labels[REFERENCE_LABEL] = key


def names_by_ids(ids_of: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Name problems by the ids of their candidates.

    A problem's name is the part before a slash that all of its ids share ("softmax/a", "softmax/b"). If several
    problems would get the same name, those slashes separate groups ("level1/19_ReLU"). Then a problem with one
    candidate is named by its whole id, and one with several by the common part of its ids. If there is none, or it is
    taken, the name gets a digest.

    Args:
        ids_of: the ids of each problem's candidates, by the key of its reference.

    Returns:
        A name for each key; no two are the same.
    """
    folders = {key: _common(ids).rpartition("/")[0] for key, ids in ids_of.items()}
    by_slash = Counter(folders.values())
    parts_groups = any(name and count > 1 for name, count in by_slash.items())
    names = {}
    for key, ids in ids_of.items():
        whole = len(ids) == 1 and (parts_groups or not folders[key])
        clashes = by_slash[folders[key]] > 1
        names[key] = ids[0] if whole else _common_words(ids) if clashes or not folders[key] else folders[key]
    taken = Counter(names.values())
    return {
        key: name if name and taken[name] == 1 else f"{name or 'reference'} {key[:8]}" for key, name in names.items()
    }


def _common(ids: Sequence[str]) -> str:
    return os.path.commonprefix(list(ids))  # noqa: RUF071  (cut at a separator afterwards)


def _common_words(ids: Sequence[str]) -> str:
    """Return the common part of ids without a cut-off word: "19_ReLU" for "19_ReLU_s0" and "19_ReLU_s1"."""
    same = _common(ids)
    found = _SEPARATED.match(same)
    if found is not None:
        return found[1]
    return same if all(id[len(same) :].isdigit() for id in ids) else ""
