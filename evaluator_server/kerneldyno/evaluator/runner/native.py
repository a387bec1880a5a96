"""The native code that a candidate has built and loaded: functions that it defines, and library functions it needs.

They are read from the symbol tables (ELF, 64 bits) of loaded shared objects in the scratch and /dev/shm, the only
places where a candidate can put any. nvcc gives each kernel a host function of the same name. So a kernel in a profile
is the candidate's own if such a function is defined there, whatever macros, attributes or templates the source uses; no
search of the source text could find that out. This code runs in the candidate's own process, so its answers are labels
and not evidence.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..shared import proc

_MAPS = proc.MAPS
#: A place outside the scratch where a candidate can put files.
_SHARED = "/dev/shm/"
_MAGIC = b"\x7fELF\x02\x01"
_HEADER, _SECTION, _SYMBOL = struct.Struct("<40xQ10xHHxx"), struct.Struct("<4xI8x8xQQI4x8xQ"), struct.Struct("<IBBHQQ")
#: Functions of NVIDIA's libraries that compute, by name or as called through torch.
_LIBRARY = re.compile(
    r"^cublas(Lt)?\w*([Gg]emm|[Gg]emv|Matmul|[Tt]rsm|[Ss]yrk)|^cudnn\w*(Forward|Execute)|^cusparseSp(MM|MV)|^cufftExec"
    r"|^cusolverDn[SDCZX]|\bat::cuda::blas::\w*gemm"
)
_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTION = 2  # STT_FUNC
#: The section in which nvcc puts programs for GPUs.
_DEVICE_CODE = b"\0.nv_fatbin\0"
#: Larger files (bytes) are not read, since no library is that large. Symbols beyond the second number are ignored.
_MOST_BYTES = 1 << 30
_MOST_SYMBOLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Native:
    """Mangled names: of the functions that are defined, and of the symbols that other libraries must provide."""

    defines: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()


def loaded(scratch: str) -> Native:
    """Return what the shared objects define and need that this process has loaded from its scratch."""
    defines: set[str] = set()
    needs: set[str] = set()
    for path in _mapped(scratch):
        try:
            found = read(path)
        except (OSError, ValueError, OverflowError, struct.error):  # the candidate deleted or damaged the file
            continue
        defines |= found.defines
        needs |= found.needs
    return Native(frozenset(defines), frozenset(needs))


def with_device_code(scratch: str) -> list[Path]:
    """Return the shared objects with programs for a GPU that this process has loaded from its scratch."""
    found = []
    for path in _mapped(scratch):
        with contextlib.suppress(OSError, ValueError):  # the candidate deleted or damaged the file
            if 0 < path.stat().st_size <= _MOST_BYTES and _names_section(path, _DEVICE_CODE):
                found.append(path)
    return found


def _names_section(path: Path, name: bytes) -> bool:
    """Return True if the name of a section is in a file. Names of sections are at the end."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data[: len(_MAGIC)] == _MAGIC and data.rfind(name) >= 0


def read(path: Path) -> Native:
    """Return what one shared object defines and needs. Raises OSError, ValueError, OverflowError or struct.error."""
    if not 0 < path.stat().st_size <= _MOST_BYTES:
        raise ValueError(f"{path}: the file is empty or too large")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"{path}: not a 64-bit shared object")
        symbols = list(_symbols(data))
    defines = {name for name, defined, is_function in symbols if defined and is_function}
    return Native(frozenset(defines), frozenset(name for name, defined, _ in symbols if not defined))


def _mapped(scratch: str) -> list[Path]:
    places = (scratch.rstrip("/") + "/", _SHARED)
    return [Path(path) for path in sorted(proc.mapped_files(_MAPS)) if path.startswith(places)]


def _symbols(data: mmap.mmap) -> Iterator[tuple[str, bool, bool]]:
    """Yield each symbol of all tables: its name, whether it is defined, and whether it is a function."""
    start, size, count = _HEADER.unpack_from(data)
    sections = [_SECTION.unpack_from(data, start + number * size) for number in range(count)]
    for kind, offset, length, link, _ in sections:
        if kind not in _TABLES or link >= len(sections):
            continue
        _, text_offset, text_length, _, _ = sections[link]
        texts = data[text_offset : text_offset + text_length]
        table = data[offset : offset + min(length - length % _SYMBOL.size, _MOST_SYMBOLS * _SYMBOL.size)]
        for at, info, _, section, _, _ in _SYMBOL.iter_unpack(table):
            if at and (end := texts.find(b"\0", at)) > at:
                yield texts[at:end].decode("utf-8", "replace"), bool(section), info & 0xF == _FUNCTION


def is_library_call(name: str) -> bool:
    """Return True if this is a function of NVIDIA's libraries that computes (`cublasSgemm_v2`)."""
    return _LIBRARY.search(name) is not None


def demangled(names: Iterable[str]) -> set[str]:
    """Return demangled names, as profilers show them. Names that are not mangled stay unchanged."""
    demangle = _demangler()
    return {demangle(name) if name.startswith("_Z") else name for name in names}


@cache
def _demangler():  # type: ignore[no-untyped-def]
    """Return C++'s own demangler: https://itanium-cxx-abi.github.io/cxx-abi/abi.html#demangler."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")  # torch has already loaded it
    except OSError:
        return lambda name: name
    function = library.__cxa_demangle
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    function.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def demangle(name: str) -> str:
        status = ctypes.c_int()
        made = function(name.encode(), None, None, ctypes.byref(status))
        if not made:
            return name
        text = ctypes.string_at(made).decode("utf-8", "replace")
        free(made)
        return text

    return demangle
