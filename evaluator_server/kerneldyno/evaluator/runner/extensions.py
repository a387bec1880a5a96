"""Extensions that a candidate builds while it runs: torch's order to call the compilers is answered with a library.

`torch.utils.cpp_extension.load_inline` and `load` write the sources, call one function that builds them, and import the
result. `Interception` replaces this one function, whatever calls it and when: at import, in a constructor, in the
first call. Everything else stays torch's. This code runs in the candidate's own process.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from ..shared.native_build import NativeBuild

#: torch's functions that write the build file and run it, and that import the result.
_BUILD, _IMPORT = "_write_ninja_file_and_build_library", "_import_module_from_library"
#: Environment variables that change what a compiler does. If a candidate sets one, its build stays as it is.
_OTHER_COMPILERS = (
    *("CC", "CXX", "CUDAHOSTCXX", "PYTORCH_NVCC", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDAFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "NVCC_CCBIN"),
)
#: Suffixes of headers that are read from include directories of the candidate.
_HEADERS = (".h", ".hpp", ".cuh", ".inl", ".inc")
_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)

#: Takes a build and the path at which the library must be. Returns False if torch should build it itself.
Provide = Callable[[NativeBuild, Path], bool]


def intercept(provide: Provide, imported: Callable[[str], Any] | None = None) -> None:
    """Let `provide` answer every order to build an extension, from now on.

    Args:
        provide: Called for each build that can be described.
        imported: Returns the module for a name, in place of importing the library; then nothing is built here, either.
            None imports it.
    """
    original = getattr(cpp_extension, _BUILD)
    signature = inspect.signature(original)
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST", "")

    @functools.wraps(original)
    def build(*args: Any, **kwargs: Any) -> None:
        said = signature.bind(*args, **kwargs).arguments
        described = _describe(said, architectures)
        target = Path(said["build_directory"]) / f"{said['name']}{cpp_extension.LIB_EXT}"
        if (described is None or not provide(described, target)) and imported is None:
            original(*args, **kwargs)

    setattr(cpp_extension, _BUILD, build)
    # It would write a compiled header beside torch's own. Builders are faster than that.
    cpp_extension._check_and_build_extension_h_precompiler_headers = lambda *_, **__: None
    cpp_extension.remove_extension_h_precompiler_headers = lambda *_, **__: None
    if imported is not None:
        setattr(cpp_extension, _IMPORT, lambda name, *_, **__: imported(name))


def _describe(said: dict[str, Any], architectures: str) -> NativeBuild | None:
    """Return the build that torch was asked for, or None if it is one that only torch can do."""
    if said.get("with_sycl") or said.get("is_standalone") or any(name in os.environ for name in _OTHER_COMPILERS):
        return None
    try:
        sources = [Path(path) for path in said["sources"]]
        with_cuda = said.get("with_cuda")
        present = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
        build = NativeBuild(
            said["name"],
            _files(sources, said.get("extra_include_paths") or []),
            _words(said.get("extra_cflags") or ()),
            _words(said.get("extra_cuda_cflags") or ()),
            _words(said.get("extra_ldflags") or ()),
            any(path.suffix == ".cu" for path in sources) if with_cuda is None else bool(with_cuda),
            "" if present == architectures else present,
        ).with_own_lines()
        build.check()
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    # Builders call no compiler for a file of another suffix.
    return build if len(build.sources) == len(sources) else None


def _words(flags: Iterable[str]) -> tuple[str, ...]:
    """Return flags as a shell would split them: torch puts them into command lines."""
    return tuple(word for flag in flags for word in shlex.split(flag))


def _files(sources: list[Path], directories: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the sources, what they include from beside them, and the headers of the candidate's include directories.

    Paths are relative to the directory. Raises ValueError, OSError.
    """
    found: dict[str, str] = {}
    for source in sources:
        if source.name in found:
            raise ValueError("two sources have the same name")
        found[source.name] = source.read_text()
    headers = [(path, Path(each)) for each in directories for path in sorted(Path(each).rglob("*"))]
    beside = [(path, source.parent) for source in sources for path in _included(source)]
    for path, directory in (*beside, *(each for each in headers if each[0].suffix in _HEADERS)):
        name, text = os.path.relpath(path, directory), path.read_text()
        if found.setdefault(name, text) != text:
            raise ValueError("two headers have the same name")
    return tuple(found.items())


def _included(source: Path) -> list[Path]:
    """Return the files that a source includes from its own directory, and those that these include."""
    found = [source]
    for path in found:  # it grows
        beside = (Path(os.path.normpath(path.parent / name)) for name in _QUOTED.findall(path.read_text()))
        found += [each for each in dict.fromkeys(beside) if each not in found and each.is_file()]
    return found[1:]
