"""Candidates of several files: the rules for their paths and contents, and how a person reads them as one text.

`kernel_code` is the candidate's Python module, and `kernel_files` lie beside it: further Python modules, native sources
that are built into the module `native`, and their headers. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from kerneldyno.rpc.build_flags import LIBRARY, MAX_FLAGS, Compiler, refused
from kerneldyno.rpc.source import BYTE_ORDER_MARK, without_mark
from kerneldyno.v1 import evaluation_pb2 as pb

#: Suffixes of sources that are compiled.
NATIVE_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")
#: Suffixes of all files of a candidate.
SUFFIXES = (".py", *NATIVE_SUFFIXES, ".cuh", ".h", ".hpp", ".inl", ".inc")
MAX_FILES = 64
MAX_PATH_CHARS = 100
#: Most bytes of all files together.
MAX_FILES_BYTES = 1024 * 1024
#: Modules that the evaluator makes: `kernel_code`, and the one of the native sources.
RESERVED = ("candidate", "native")

_PART = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*")
#: Titles of the parts of `as_one_text`.
_ENTRY, _FLAGS = "candidate.py", "build flags"


def is_native(path: str) -> bool:
    """Return whether the file at `path` is compiled."""
    return path.endswith(NATIVE_SUFFIXES)


def has_native(files: Iterable[pb.CandidateFile]) -> bool:
    """Return whether any of `files` is compiled."""
    return any(is_native(file.path) for file in files)


def file_faults(files: Collection[pb.CandidateFile]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `kernel_files`: the path of a field in EvalRequest, and a description."""
    if len(files) > MAX_FILES:
        yield "kernel_files", f"has {len(files)} files; at most {MAX_FILES} are allowed"
        return
    contents = [file.content for file in files]
    if (size := sum(len(content.encode()) for content in contents)) > MAX_FILES_BYTES:
        yield "kernel_files", f"has {size} bytes in all files; at most {MAX_FILES_BYTES} bytes (1 MiB) are allowed"
    seen: dict[str, str] = {}
    for number, (file, content) in enumerate(zip(files, contents, strict=True)):
        where, name = f"kernel_files[{number}]", _show(file.path)
        if wrong := path_fault(file.path) or _clash(file.path, seen):
            yield f"{where}.path", wrong
        seen.setdefault(file.path.lower(), file.path)
        if not content:
            yield f"{where}.content", f"of {name} is empty; give its text or leave the file out"
        elif "\0" in content:
            yield f"{where}.content", f"of {name} contains a NUL byte at position {content.index(chr(0))}; give text"


def path_fault(path: str) -> str:
    """Return what is wrong with the path of one file, with the path; "" if nothing is."""
    name, parts = _show(path), path.split("/")
    if not path:
        return "is empty; give a relative path, for example kernels/softmax.cu"
    if len(path) > MAX_PATH_CHARS:
        return f"{name} has {len(path)} characters; at most {MAX_PATH_CHARS} are allowed"
    if not all(_PART.fullmatch(part) for part in parts):
        return (
            f"{name} is not a usable path; give a relative one whose parts, between slashes, begin with a letter or _ "
            "and consist of letters, digits, '.', '_' and '-'"
        )
    suffix = PurePosixPath(path).suffix
    if suffix not in SUFFIXES:
        return f"{name} has the suffix {suffix!r}; allowed are {', '.join(SUFFIXES)}"
    top = parts[0].removesuffix(".py").lower()
    if suffix == ".py" and top in RESERVED:
        taken = (
            "the module of " + ("the entry point" if top == "candidate" else "the native sources") + " has this name"
        )
        return f"{name} is taken: {taken}; choose another one"
    return ""


def _clash(path: str, seen: Mapping[str, str]) -> str:
    """Return why `path` and an earlier one cannot both exist; "" if they can."""
    name, lower = _show(path), path.lower()
    if (other := seen.get(lower)) is not None:
        return (
            f"{name} is there twice; paths are unique" if other == path else f"{name} and {other!r} differ only in case"
        )
    folders = [str(folder) for folder in PurePosixPath(lower).parents]
    within = next((one for folder in folders if (one := seen.get(folder)) is not None), None)
    if within is not None:
        return f"{name} needs a folder {within!r}, but that is a file; rename one of them"
    if any(one.startswith(lower + "/") for one in seen):
        return f"{name} is also a folder of another file; rename one of them"
    return ""


def flag_faults(flags: pb.BuildFlags) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `build_flags`: the path of a field in EvalRequest, and a description."""
    kinds: tuple[tuple[str, Collection[str]], ...] = (
        ("cuda", flags.cuda),
        ("cpp", flags.cpp),
        ("libraries", flags.libraries),
    )
    for kind, given in kinds:
        if len(given) > MAX_FLAGS:
            yield f"build_flags.{kind}", f"has {len(given)} items; at most {MAX_FLAGS} are allowed"
    compilers: tuple[tuple[Compiler, Collection[str]], ...] = (("cuda", flags.cuda), ("cpp", flags.cpp))
    for compiler, given in compilers:
        for flag, reason in refused(list(given)[:MAX_FLAGS], compiler):
            yield f"build_flags.{compiler}", f"{_show(flag)} {reason}"
    for name in flags.libraries[:MAX_FLAGS]:
        if not LIBRARY.fullmatch(name):
            yield "build_flags.libraries", f"{_show(name)} is not the name of a library; give one such as cublas"


def normalize(request: pb.EvalRequest) -> None:
    """Sort the files of `request` by path, and remove byte order marks at their starts."""
    for file in request.kernel_files:
        if (content := file.content).startswith(BYTE_ORDER_MARK):
            file.content = without_mark(content)
    request.kernel_files.sort(key=lambda file: file.path)


def candidate_text(request: pb.EvalRequest) -> str:
    """Return the candidate of `request` as one text for people: see `as_one_text`."""
    flags, files = request.build_flags, {file.path: file.content for file in request.kernel_files}
    kinds = {"cuda": flags.cuda, "cpp": flags.cpp, "libraries": flags.libraries}
    told = "\n".join(f"{kind}: {' '.join(given)}" for kind, given in kinds.items() if given)
    return as_one_text(request.kernel_code, files, told)


def as_one_text(kernel_code: str, files: Mapping[str, str], flags: str = "") -> str:
    """Return a candidate as one text for people; the text does not depend on the order of the files.

    Args:
        kernel_code: source of its Python module; "" if it has none.
        files: contents of its other files, by path.
        flags: its build flags in words.

    Returns:
        `kernel_code` if there is nothing else. Otherwise its parts, each below a line with its name.
    """
    if not files and not flags:
        return kernel_code
    parts = [(_ENTRY, kernel_code), *sorted(files.items()), (_FLAGS, flags)]
    return "\n".join(f"==== {name} ====\n{text.rstrip()}\n" for name, text in parts if text)


def _show(value: str) -> str:
    """Quote `value` for a message: printable, and cut when long."""
    return repr(value if len(value) <= 120 else value[:117] + "...")
