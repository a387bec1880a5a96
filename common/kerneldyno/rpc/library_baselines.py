"""Library baselines of a request: what is wrong with them, and their sources without byte order marks.

`validation` calls this. A library baseline is a program that a candidate is timed beside; it comes from the requester.
"""

from __future__ import annotations

from collections.abc import Iterator

from kerneldyno.rpc.source import BYTE_ORDER_MARK, without_mark
from kerneldyno.v1 import evaluation_pb2 as pb

#: Most library baselines of a request, most characters of a name, and most bytes of a source.
MAX_BASELINES = 4
MAX_NAME_CHARS = 100
MAX_CODE_BYTES = 1024 * 1024


def baseline_faults(request: pb.EvalRequest) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `library_baselines`: the path of a field in EvalRequest, and a description."""
    found = request.library_baselines
    if found and request.toolkit == "kernel_simple":
        yield "library_baselines", "must be empty with the kernel_simple toolkit, which has no reference to replace"
    if len(found) > MAX_BASELINES:
        yield "library_baselines", f"has {len(found)} baselines; at most {MAX_BASELINES} are allowed"
        return
    if len({each.name for each in found}) < len(found):
        yield "library_baselines", "gives two baselines the same name; give each a name of its own"
    for number, each in enumerate(found):
        where, code = f"library_baselines[{number}]", each.code
        if not 0 < len(each.name) <= MAX_NAME_CHARS or not each.name.isprintable():
            yield f"{where}.name", f"{each.name[:50]!r} is no name; give 1 to {MAX_NAME_CHARS} printable characters"
        if not without_mark(code).strip():
            yield f"{where}.code", "is missing; give the Python source of a class like the reference's"
        elif (size := len(code.encode())) > MAX_CODE_BYTES:
            yield f"{where}.code", f"is {size} bytes long; at most {MAX_CODE_BYTES} bytes (1 MiB) are allowed"
        elif "\0" in code:
            yield f"{where}.code", f"contains a NUL byte at position {code.index(chr(0))}; Python source cannot"


def normalize_baselines(request: pb.EvalRequest) -> None:
    """Remove byte order marks at the starts of the sources."""
    for each in request.library_baselines:
        if (code := each.code).startswith(BYTE_ORDER_MARK):
            each.code = without_mark(code)
