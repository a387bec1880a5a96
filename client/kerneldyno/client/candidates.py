"""Read a candidate from a file or a folder, as fields of a request.

A folder has the candidate's Python module, further modules, native sources (.cu, .cpp) and their headers. Its module is
`candidate.py`, else `model.py`, else the only .py file at its top; native sources alone need none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerneldyno.client.errors import CandidateFilesError
from kerneldyno.rpc.candidate_files import SUFFIXES, file_faults, is_native, path_fault
from kerneldyno.rpc.input_files import read_text
from kerneldyno.v1.evaluation_pb2 import CandidateFile

#: Backend of candidates with native sources. The default of requests is "triton".
NATIVE_BACKEND = "cuda"
#: Names of the Python module of a folder, in order of preference.
_ENTRIES = ("candidate.py", "model.py")


def read_candidate(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a request that hold the candidate at `path`.

    These are `kernel_code`, and for candidates with other files also `kernel_files`; `backend` is "cuda" if native
    sources are among them. Hidden files and __pycache__ are ignored. Use it as
    `EvalRequest(reference_code=..., **read_candidate("softmax/"))`, or override fields with
    `{**read_candidate("softmax/"), "backend": "torch"}`.

    Args:
        path: a Python file, a native source, or a folder.

    Raises:
        CandidateFilesError: the files are no candidate; the message names the file and says what to do.
        OSError: a file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        files = {str(file.relative_to(path).as_posix()): file for file in _files(path)}
        return _fields(path, files, _entry(path, files))
    if is_native(path.name):
        return _fields(path.parent, {path.name: path}, None)
    return {"kernel_code": _text(path)}


def holds_candidate(path: Path) -> bool:
    """Return whether `path` is a folder with candidate.py, model.py, or a native source at its top."""
    return path.is_dir() and any(one.name in _ENTRIES or is_native(one.name) for one in path.iterdir())


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that belong to the candidate, in a stable order."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir() and not path.is_symlink():  # a link may lead to a folder above
            yield from _files(path)
        elif path.suffix in SUFFIXES:
            yield path
        else:
            raise CandidateFilesError(
                f"{path} cannot be a part of a candidate: its files end in {', '.join(SUFFIXES)};"
                " move it elsewhere, or begin its name with a dot"
            )


def _entry(folder: Path, files: dict[str, Path]) -> str | None:
    """Return the name of the folder's Python module; None if it has only native sources."""
    modules = [name for name in files if name.endswith(".py")]
    top = [name for name in modules if "/" not in name]
    if found := next((name for name in _ENTRIES if name in top), None):
        return found
    if len(top) == 1:
        return top[0]
    if top:
        raise CandidateFilesError(
            f"{folder} has several Python files ({', '.join(top)}): name the one that defines the candidate candidate.py"
        )
    if modules:
        raise CandidateFilesError(
            f"{folder} has Python files only in folders below it: put the one that defines the candidate at its top, as"
            " candidate.py"
        )
    if not any(map(is_native, files)):
        raise CandidateFilesError(f"{folder} has no source: put candidate.py, or a .cu or .cpp file, into it")
    return None


def _fields(folder: Path, files: dict[str, Path], entry: str | None) -> dict[str, Any]:
    others = {name: path for name, path in files.items() if name != entry}
    for name, path in others.items():
        if fault := path_fault(name):
            raise CandidateFilesError(f"{path}: {fault}")
    # An empty file, such as __init__.py, becomes an empty line, because the contract has no empty files.
    texts = [CandidateFile(path=name, content=_text(path) or "\n") for name, path in others.items()]
    if fault := next((description for _, description in file_faults(texts)), ""):
        raise CandidateFilesError(f"{folder}: {fault}")
    fields: dict[str, Any] = {"kernel_code": "" if entry is None else _text(files[entry])}
    if texts:
        fields["kernel_files"] = [{"path": file.path, "content": file.content} for file in texts]
    if any(map(is_native, others)):
        fields["backend"] = NATIVE_BACKEND
    return fields


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise CandidateFilesError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
