"""Lean headers: the parts of PyTorch's headers that a source uses, found before the compilers run.

nvcc parses everything that it includes twice, and the host's compiler once more. `torch/extension.h` declares all of
PyTorch: 60 seconds of processor time. The headers in `headers/` stand in front of torch's own. They declare Tensor, its
methods and the dispatch macros, and include torch's own header of every operator that the source names (ATen/ops has
one for each): 8 seconds. What a compiler makes of the source is the same, or it fails; then all headers are used.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..shared.native_build import NativeBuild
from . import tensor_methods

HEADERS = Path(__file__).with_name("headers")
#: Name of the file with the headers of the operators; torch/types.h includes it.
USED = "kerneldyno_used.h"
#: Sources that name one of these need all headers, or could be compiled to something else without them.
_NEEDS_ALL = re.compile(
    r"\b(requires_grad\w*|autograd|globalContext|expand_size|checkAllSame\w*|TensorArg)\b|\btorch::(nn|jit|optim|data)\b"
)
_QUALIFIED = re.compile(r"\b(?:torch|at)::(\w+)")
_USES_ALL_NAMES = re.compile(r"\busing\s+namespace\s+(?:torch|at)\b")
_VARIANT = re.compile(r"(_outf?|_)$")
_CALLED = re.compile(r"\b([a-z_]\w*)\s*\(")
_INDEXES = re.compile(r"\bindexing\b|[.>]index(_put_)?\s*\(")
_PRINTS = re.compile(r"<<")
_LIBRARY = re.compile(r"\bTORCH_(SELECTIVE_)?LIBRARY")
_COMPLEX = re.compile(r"complex|thrust|\bcub\b", re.IGNORECASE)
_BINDING = re.compile(r"\b(PYBIND11_\w+|pybind11|py::)")


_VALUES = ("ATen/core/ivalue.h", "ATen/core/ivalue_inl.h")
#: Headers of torch that call methods of Tensor, by what includes them.
_CALL_METHODS = {
    "#pragma once": ("ATen/TensorOperators.h",),
    "ATen/TensorIndexing.h": ("ATen/TensorIndexing.h", "ATen/ExpandUtils.h", *_VALUES),
    "ATen/core/Formatting.h": ("ATen/core/Formatting.h",),
    "torch/library.h": _VALUES,
}

#: The header that is compiled ahead for bindings, and the line with which those begin that `load_inline` writes.
PRECOMPILED = "kerneldyno_binding.h"
_BEGINS_WITH_ALL = "#include <torch/extension.h>\n"
_MODULE = "\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\nm.def("


def header(include: Path, directory: Path) -> list[str]:
    """Write the header that is compiled ahead into `directory`, and return the flags to compile it.

    It serves bindings that only declare functions, so it has no methods of Tensor that torch's headers do not call.
    """
    (directory / PRECOMPILED).write_text(_BEGINS_WITH_ALL)
    (directory / USED).write_text("#pragma once\n")
    _write_tensor_body(include, directory, "", "#pragma once")
    return [f"-I{HEADERS}", f"-I{directory}", "-x", "c++-header", PRECOMPILED, "-o", f"{PRECOMPILED}.gch"]


def _only_declares(text: str) -> bool:
    """Return True if a source declares functions and binds them, and does nothing else, as usual with `load_inline`."""
    before, found, _ = text.partition(_MODULE)
    return bool(found) and before.startswith(_BEGINS_WITH_ALL) and "{" not in before


def _write_tensor_body(include: Path, directory: Path, text: str, header: str) -> None:
    """Write torch's TensorBody.h with the methods that a text, its header of operators and torch's own headers use."""
    read = [name for marker, names in _CALL_METHODS.items() if marker in header for name in names]
    called = [(include / name).read_text() for name in read if (include / name).is_file()]
    if (body := tensor_methods.selected(include, tensor_methods.words("\n".join([text, *called])))) is not None:
        (directory / "ATen/core").mkdir(parents=True)
        (directory / "ATen/core/TensorBody.h").write_text(body)


def is_possible(text: str) -> bool:
    """Return True if the text of all files does not ask for parts that only all headers have."""
    return _NEEDS_ALL.search(text) is None


def used(text: str, operators: Path) -> str:
    """Return the content of `kerneldyno_used.h`.

    Args:
        text: A source and its headers.
        operators: torch's directory ATen/ops.
    """
    names = set(_QUALIFIED.findall(text))
    if _USES_ALL_NAMES.search(text):
        names |= set(_CALLED.findall(text))
    # The variants relu_, relu_out and relu_outf are in relu.h.
    names |= {_VARIANT.sub("", name) for name in names}
    lines = [f"#include <ATen/ops/{name}.h>" for name in sorted(names) if (operators / f"{name}.h").is_file()]
    if _INDEXES.search(text):
        lines.append("#include <ATen/TensorIndexing.h>")
    if _PRINTS.search(text) and "cout" in text:
        lines.append("#include <ATen/core/Formatting.h>")
    if _LIBRARY.search(text):
        lines.append("#include <torch/library.h>")
    return "\n".join(["#pragma once", *lines, ""])


def flags(
    build: NativeBuild, source: str, include: Path, directory: Path, precompiled: Path | None = None
) -> list[str]:
    """Write the header of `used` for one source, and return its compiler's flags for lean headers.

    Args:
        build: The build.
        source: The path of one of its sources.
        include: torch's include directory.
        directory: An existing directory; what is written there is for this source alone.
        precompiled: The directory of the header that was compiled ahead, if there is one.
    """
    only_declares = source.endswith(".cpp") and _only_declares(dict(build.files)[source])
    text = "\n".join(content for path, content in build.files if path == source or path not in build.sources)
    own = directory / f"lean_{source.replace('/', '_')}"
    own.mkdir()
    header = used(text, include / "ATen/ops")
    (own / USED).write_text(header)
    _write_tensor_body(include, own, text, header)
    complex_too = ["-DKERNELDYNO_COMPLEX"] if source.endswith(".cu") and _COMPLEX.search(text) else []
    # Other compilers than nvcc always read pybind11.
    binding = ["-DKERNELDYNO_BINDING"] if source.endswith(".cu") and _BINDING.search(text) else []
    # gcc ignores a compiled header that does not fit to the other flags, and reads the header itself.
    ahead = ["-include", str(precompiled / PRECOMPILED), "-include", USED] if precompiled and only_declares else []
    return [f"-I{HEADERS}", f"-I{own}", *binding, *complex_too, *ahead]
