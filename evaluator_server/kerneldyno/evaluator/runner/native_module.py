"""The module `native`: the library that was built from a request's `kernel_files`, as the candidate's Python sees it.

A library with a binding of its own is imported as it is. In any other, the functions declared `extern "C"` become
Python functions that take tensors and numbers, converted as their C prototypes say.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import re
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..shared.native_build import NATIVE, NativeBuild

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
#: Directives of the preprocessor, and attributes: they may stand before a function.
_ASIDE = re.compile(
    r"^[ \t]*#(?:.*\\\n)*.*$|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\[\[[^\[\]]*\]\]", re.MULTILINE
)
_ONE = re.compile(r'extern\s+"C"\s+(?!\{)([^;{}()=]*?)\b(\w+)\s*\(([^()]*)\)\s*(?:noexcept\s*)?[{;]')
_BLOCK = re.compile(r'extern\s+"C"\s*\{')
_IN_BLOCK = re.compile(r"(?:^|[;}])\s*([A-Za-z_][^;{}()=]*?)\b(\w+)\s*\(([^()]*)\)\s*(?:noexcept\s*)?(?=[{;])")
_QUALIFIERS = re.compile(r"\b(const|volatile|static|inline|__restrict__|__restrict|restrict|struct|enum|__host__)\b")
_STREAM = "cudaStream_t"
_NUMBERS = {
    **dict.fromkeys(("int", "int32_t", "signed", "signed int"), ctypes.c_int),
    **dict.fromkeys(("unsigned", "unsigned int", "uint32_t"), ctypes.c_uint),
    **dict.fromkeys(("long", "long int", "long long", "long long int", "int64_t", "ptrdiff_t"), ctypes.c_int64),
    **dict.fromkeys(("unsigned long", "unsigned long long", "uint64_t", "size_t"), ctypes.c_uint64),
    **{"float": ctypes.c_float, "double": ctypes.c_double, "bool": ctypes.c_bool, "_Bool": ctypes.c_bool},
    **{"short": ctypes.c_short, "int16_t": ctypes.c_short, "char": ctypes.c_char, "int8_t": ctypes.c_int8},
    **{"uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16, "cudaError_t": ctypes.c_int},
}


class PrototypeError(TypeError):
    """A function of `native` cannot be called like that; the message says what it expects."""


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `native`. `library` returns the path of the built library, and may raise what a build raises."""

    def __init__(self, build: NativeBuild, library: Callable[[], Path]) -> None:
        self._build = build
        self._library = library

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of `native`, and None for every other module."""
        if fullname != NATIVE:
            return None
        if "PYBIND11_MODULE" in self._build.text:
            return importlib.util.spec_from_file_location(NATIVE, self._library())
        return ModuleSpec(NATIVE, self)

    def exec_module(self, module: ModuleType) -> None:
        """Load the library, and add its functions to the module."""
        path = self._library()
        if "TORCH_LIBRARY" in self._build.text:
            torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
        library = ctypes.CDLL(str(path))
        for name, (result, parameters) in prototypes(self._build.text).items():
            if hasattr(library, name):
                setattr(module, name, _callable(library, name, result, parameters))


def prototypes(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return the functions that C++ sources declare `extern "C"`: by name, the types of result and parameters."""
    text = _ASIDE.sub(" ", _COMMENT.sub(" ", text))
    found = {}
    for result, name, parameters in _ONE.findall(text):
        found[name] = (_type(result), _parameters(parameters))
    for block in _BLOCK.finditer(text):
        for result, name, parameters in _IN_BLOCK.findall(_outermost(text, block.end())):
            found[name] = (_type(result), _parameters(parameters))
    return found


def _outermost(text: str, start: int) -> str:
    """Return the content of the braces that were opened just before `start`, with the braces in it left empty."""
    depth, kept = 1, []
    for character in text[start:]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            break
        if depth == 1 or (depth == 2 and character == "{"):
            kept.append(character)
    return "".join(kept)


def _parameters(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    return [] if parts in ([""], ["void"]) else [_type(part, named=True) for part in parts]


def _type(text: str, *, named: bool = False) -> str:
    """Return a type in a short form: "*" for pointers, else its words without qualifiers (and without its name)."""
    plain = _QUALIFIERS.sub(" ", text)
    if "*" in plain or "[" in plain:
        return "*"
    words = [word for word in plain.replace("std::", "").split() if word not in ("extern", '"C"')]
    if named and len(words) > 1 and " ".join(words) not in _NUMBERS:
        words.pop()
    return " ".join(words)


def _callable(library: ctypes.CDLL, name: str, result: str, parameters: list[str]) -> Callable[..., Any]:
    function = library[name]
    function.restype = ctypes.c_void_p if result == "*" else _NUMBERS.get(result)
    unknown = [each for each in parameters if each not in _NUMBERS and each not in ("*", _STREAM)]
    takes = f"{name}({', '.join(parameters)})"

    def call(*args: Any) -> Any:
        if unknown:
            raise PrototypeError(f"{takes}: {unknown[0]} cannot be passed from Python; use pointers and numbers")
        if len(args) == len(parameters) - 1 and parameters[-1] == _STREAM:
            args = (*args, torch.cuda.current_stream())
        if len(args) != len(parameters):
            raise PrototypeError(f"{takes} takes {len(parameters)} arguments, not {len(args)}")
        given = function(*(_argument(takes, kind, value) for kind, value in zip(parameters, args, strict=True)))
        if result == "cudaError_t" and given:
            raise RuntimeError(f"CUDA error: {name} returned {given}")
        return given

    call.__name__ = name
    return call


def _argument(takes: str, kind: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if kind != "*":
            raise PrototypeError(f"{takes}: {kind} got a tensor; use .item() for its value")
        if not value.is_contiguous():
            raise PrototypeError(f"{takes}: a tensor of strides {tuple(value.stride())}; use .contiguous()")
        return ctypes.c_void_p(value.data_ptr())
    try:
        if kind in ("*", _STREAM):
            return ctypes.c_void_p(getattr(value, "cuda_stream", value))
        return _NUMBERS[kind](value)
    except TypeError:
        raise PrototypeError(f"{takes}: {kind} got {type(value).__name__}") from None
