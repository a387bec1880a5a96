"""What compilers made of the candidate's kernels: registers, spills and shared memory, and on request PTX and SASS.

Triton knows its own kernels. For those in shared objects, NVIDIA's `cuobjdump` is asked, in the candidate's own sandbox
and with limits of time and output. Everything here runs in the candidate's own process, so it is a label and not
evidence.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from ..backends import Compiled
from ..shared import cuda_tools, wire
from . import native, profiler

_Found = TypeVar("_Found")

#: Most kernels that are described, longest name, and longest listing, in characters.
MOST_KERNELS = 50
_MOST_NAME = 200
MOST_LISTING = 64 << 10
#: Most characters of all listings together. In JSON each may take two bytes, and a runner's frame holds 1 MiB.
_MOST_TEXT = 400 << 10
#: Most bytes of a tool's output that are read, and most characters of names in a command line.
_MOST_OUTPUT = 32 << 20
_MOST_ARGUMENTS = 100_000
#: From this architecture on, cuobjdump counts memory that the driver reserves in each block that uses shared memory.
_RESERVING_ARCHITECTURE = 90
_RESERVED_BYTES = 1024
_TOOL = "cuobjdump"
_MISSING = (
    "cuobjdump was not found in CUDA_HOME, /usr/local/cuda, PATH or Triton's package; it comes with CUDA"
    " (packages cuda-cuobjdump and cuda-nvdisasm)"
)
_NO_PTX = "{} holds no PTX: build it with a flag such as -gencode=arch=compute_90a,code=[sm_90a,compute_90a]"
_ARCHITECTURE = re.compile(r"\s*arch = sm_(\d+)")
_FUNCTION = re.compile(r"\s*Function ?: ?(\S+)\s*|\s*Function (\S+):\s*")
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
#: An instruction with its address. What follows, and the next line, are the encoding.
_INSTRUCTION = re.compile(r"\s*(/\*[0-9a-f]{4,8}\*/)\s+(.*?;)\s*(?:/\*.*)?")
#: Instructions behind a kernel's end.
_PADDING = re.compile(r"(?:\n/\*[0-9a-f]+\*/ NOP ?;)+\Z")
_ENTRY = re.compile(r"\s*(?:\.\w+\s+)?\.entry\s+([\w$]+)")
_PTX_HEAD = re.compile(r"\.(version|target|address_size)\b")
_UNPRINTABLE = re.compile(r"[^\n\t -~]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which listings are wanted, for how many seconds tools may run, and the device's architecture ("9.0", or "")."""

    ptx: bool
    sass: bool
    seconds: float
    architecture: str

    @property
    def number(self) -> int:
        """The architecture as in sm_90; 0 if it is not known."""
        return int(re.sub(r"\D", "", self.architecture) or 0)


@dataclass(slots=True)
class Code:
    """One kernel, in the form of the frame. Sizes are in bytes: of one thread, shared memory of one block."""

    name: str
    origin: str
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_memory_bytes: int = 0
    warps: int = 0
    ptx: str = ""
    sass: str = ""
    truncated: bool = False


@dataclass(slots=True)
class _Library:
    """A shared object, and those of its kernels that are described, by their names there."""

    path: Path
    kernels: dict[str, Code] = field(default_factory=dict)


def listing(
    backend: str, compiled: Sequence[Compiled], scratch: str, ran: Collection[str], wanted: Wanted
) -> wire.Frame:
    """Describe kernels, at most `MOST_KERNELS`.

    Args:
        backend: The name of the backend that compiled `compiled`.
        compiled: Kernels that a call has launched, as their backend describes them.
        scratch: The runner's scratch, whose loaded libraries are read.
        ran: Names of kernels that ran in a profile. They come first.
        wanted: What is wanted.
    """
    tool = _Tool(time.monotonic() + wanted.seconds, scratch)
    codes = [_of_backend(each, backend, tool, wanted) for each in compiled[:MOST_KERNELS]]
    libraries = [_Library(path) for path in native.with_device_code(scratch)]
    for library in libraries:
        library.kernels = _used(tool.ask("-res-usage", str(library.path)), library.path.name, wanted.number)
    found = [(code, name, library) for library in libraries for name, code in library.kernels.items()]
    found.sort(key=lambda each: each[0].name[: profiler.NAME] not in ran)
    for _, name, library in found[max(0, MOST_KERNELS - len(codes)) :]:
        del library.kernels[name]
    for library in libraries:
        _add_listings(library, tool, wanted)
    codes += [code for code, name, library in found if name in library.kernels]
    _fit(codes)
    return {"kernels": [asdict(code) for code in codes], "failed": "; ".join(dict.fromkeys(tool.failures))[:500]}


def _of_backend(compiled: Compiled, backend: str, tool: _Tool, wanted: Wanted) -> Code:
    code = Code(
        compiled.name,
        backend,
        compiled.registers,
        compiled.spill_bytes,
        shared_memory_bytes=compiled.shared_memory_bytes,
        warps=compiled.warps,
    )
    if wanted.ptx:
        code.ptx = compiled.ptx
    if wanted.sass and compiled.binary:
        with tempfile.NamedTemporaryFile(suffix=".cubin", dir=tool.scratch) as file:
            file.write(compiled.binary)
            file.flush()
            code.sass = "\n".join(sass(tool.ask("-sass", file.name), wanted.number).values())
    return code


def _used(text: str, origin: str, architecture: int) -> dict[str, Code]:
    """Return the kernels of a library by their names there, with what they use."""
    codes = {}
    for name, numbers in usage(text, architecture).items():
        local = numbers.get("STACK", 0) + numbers.get("LOCAL", 0)
        (shown,) = native.demangled([name])
        codes[name] = Code(
            shown,
            origin[:_MOST_NAME],
            numbers.get("REG", 0),
            local,
            numbers.get("STACK", 0),
            numbers.get("SHARED", 0),
        )
    return codes


def _add_listings(library: _Library, tool: _Tool, wanted: Wanted) -> None:
    """Add the listings that are wanted to the kernels of a library."""
    names, path = list(library.kernels), str(library.path)
    if names and wanted.ptx:
        output = tool.ask("-ptx", path)
        texts = ptx(output, wanted.number)
        if output and not texts:
            tool.failures.append(_NO_PTX.format(library.path.name))
        for name, code in library.kernels.items():
            code.ptx = texts.get(name, "")
    if names and wanted.sass:
        chosen = ["-fun", ",".join(names)] if sum(map(len, names)) < _MOST_ARGUMENTS else []
        texts = sass(tool.ask("-sass", *chosen, path), wanted.number)
        for name, code in library.kernels.items():
            code.sass = texts.get(name, "")


def _fit(codes: Sequence[Code]) -> None:
    """Cut listings, so that each and all of them together are short enough."""
    left = _MOST_TEXT
    for code in codes:
        code.name = code.name[:_MOST_NAME]
        for kind in ("ptx", "sass"):
            text = _UNPRINTABLE.sub("?", getattr(code, kind))
            cut = text[: min(MOST_LISTING, left)]
            code.truncated = code.truncated or len(cut) < len(text)
            left -= len(cut)
            setattr(code, kind, cut)


def usage(text: str, architecture: int) -> dict[str, dict[str, int]]:
    """Read the output of `cuobjdump -res-usage`: numbers by function, such as {"REG": 12, "STACK": 0, "SHARED": 0}."""
    found: dict[int, dict[str, dict[str, int]]] = {}
    name = ""
    for number, line in _with_architecture(text):
        if function := _FUNCTION.fullmatch(line):
            name = function[1] or function[2]
        elif name and (numbers := {key: min(int(value), 1 << 30) for key, value in _USAGE.findall(line)}):
            shared = numbers.get("SHARED", 0)
            if number >= _RESERVING_ARCHITECTURE and shared >= _RESERVED_BYTES:
                numbers["SHARED"] = shared - _RESERVED_BYTES
            found.setdefault(number, {})[name] = numbers
            name = ""
    return _fitting(found, architecture)


def sass(text: str, architecture: int) -> dict[str, str]:
    """Read the output of `cuobjdump -sass`: instructions with their addresses by function, without their encoding."""
    found: dict[int, dict[str, list[str]]] = {}
    lines: list[str] = []
    for number, line in _with_architecture(text):
        if function := _FUNCTION.fullmatch(line):
            lines = found.setdefault(number, {}).setdefault(function[1] or function[2], [])
        elif instruction := _INSTRUCTION.fullmatch(line):
            lines.append(f"{instruction[1]} {instruction[2]}")
    return {name: _PADDING.sub("", "\n".join(each)) for name, each in _fitting(found, architecture).items()}


def ptx(text: str, architecture: int) -> dict[str, str]:
    """Read the output of `cuobjdump -ptx`: the text by kernel, with the lines about version and target before it."""
    found: dict[int, dict[str, list[str]]] = {}
    head: list[str] = []
    lines: list[str] | None = None
    depth = 0
    for number, line in _with_architecture(text):
        if lines is None and _PTX_HEAD.match(line):
            head = [*([] if line.startswith(".version") else head), line]
        elif lines is None and (entry := _ENTRY.match(line)):
            lines, depth = [*head, line], 0
            found.setdefault(number, {})[entry[1]] = lines
        elif lines is not None:
            lines.append(line)
            depth += line.count("{") - line.count("}")
            if depth <= 0 and "}" in line:
                lines = None
    return {name: "\n".join(each) for name, each in _fitting(found, architecture).items()}


def _with_architecture(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with the number of the architecture that it is about; 0 if none was named yet."""
    number = 0
    for line in text.splitlines():
        if named := _ARCHITECTURE.match(line):
            number = min(int(named[1][:6]), 1 << 20)
        yield number, line


def _fitting(found: dict[int, dict[str, _Found]], architecture: int) -> dict[str, _Found]:
    """Return what each function has for the newest architecture that the device can run, or else for the newest."""
    chosen: dict[str, _Found] = {}
    for number in sorted(found, key=lambda each: (architecture == 0 or each <= architecture, each)):
        chosen |= found[number]
    return chosen


class _Tool:
    """NVIDIA's cuobjdump, for as long as there is time."""

    def __init__(self, until: float, scratch: str) -> None:
        self.scratch = scratch
        #: What did not work, in words.
        self.failures: list[str] = []
        self._until = until
        self._places = _places()

    def ask(self, *arguments: str) -> str:
        """Return what it prints; "" if it cannot. Another version of it is asked if one fails."""
        failure = _MISSING
        for place in self._places:
            command = [str(place / _TOOL), *arguments]
            output, status, failure = self._run(command)
            if status == 0 or "Function" in output:
                return output
        self.failures.append(failure)
        return ""

    def _run(self, command: Sequence[str]) -> tuple[str, int, str]:
        """Return output, exit status, and what went wrong."""
        if (left := self._until - time.monotonic()) <= 0:
            return "", -1, f"{_TOOL} had no time left"
        environment = {**os.environ, "PATH": os.pathsep.join([*map(str, self._places), os.environ.get("PATH", "")])}
        try:
            with (
                tempfile.TemporaryFile(dir=self.scratch) as errors,
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self.scratch,
                    env=environment,
                    start_new_session=True,  # it starts nvdisasm, which must end with it
                ) as process,
            ):
                timer = threading.Timer(left, _end, [process.pid])
                timer.start()
                try:
                    assert process.stdout is not None
                    output = process.stdout.read(_MOST_OUTPUT)
                    if len(output) == _MOST_OUTPUT:
                        _end(process.pid)
                    process.wait()
                finally:
                    timer.cancel()
                errors.seek(0)
                said = errors.read(2000).decode("utf-8", "replace").strip()
        except OSError as error:
            return "", -1, f"{_TOOL}: {error}"
        said = said or f"ended with status {process.returncode}"
        return output.decode("utf-8", "replace"), process.returncode, f"{_TOOL}: {said.splitlines()[-1][:200]}"


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _places() -> list[Path]:
    """Return the folders that have the tool: CUDA's, those in PATH, and Triton's, which brings its own."""
    folders = [Path(folder) for folder in cuda_tools.folders()]
    with contextlib.suppress(ImportError):
        import triton

        folders.append(Path(triton.__file__).parent / "backends/nvidia/bin")
    return [folder for folder in dict.fromkeys(folders) if os.access(folder / _TOOL, os.X_OK)]
