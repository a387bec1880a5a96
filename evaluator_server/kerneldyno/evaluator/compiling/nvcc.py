"""nvcc's steps, run side by side: the pass for the host (cudafe++) does not wait for the one for the device (cicc).

nvcc runs its steps one after the other. Both passes parse the whole source, so together they halve the time. The plan
is read from `nvcc --dryrun`; a plan of any other shape (several architectures, relocatable device code) is left to nvcc
itself. The two passes share a name for the file's static symbols, which cudafe++ would write and cicc read. Here it is
written before both.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_LINE = "#$ "
_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)")
#: Variables of the plan that its commands need.
_NEEDED = ("CICC_PATH", "NVVMIR_LIBRARY_DIR", "LD_LIBRARY_PATH", "PATH", "TOP")
_IDENTITY = re.compile(r'--module_id_file_name "([^"]+)"')
_WRITES_IDENTITY = " --gen_module_id_file"
_RELOCATABLE = " --device-c "
#: The programs of a plan for one architecture, in nvcc's order.
_SHAPE = ("gcc -E", "cudafe++", "gcc -E", "cicc", "ptxas", "fatbinary", "gcc -c")


@dataclass(frozen=True, slots=True)
class Plan:
    """Commands for a shell: two chains that may run side by side, and one for afterwards."""

    environment: dict[str, str]
    host: tuple[str, ...]
    device: tuple[str, ...]
    last: str
    #: The file with the name of static symbols, and that name.
    identity: tuple[Path, str]


def read(dryrun: str, source: str) -> Plan | None:
    """Return the plan in the output of `nvcc --dryrun` for one source, or None if it has another shape."""
    environment, commands = {}, []
    for line in dryrun.splitlines():
        if not line.startswith(_LINE):
            continue
        text = line.removeprefix(_LINE)
        if variable := _VARIABLE.fullmatch(text):
            if variable[1] in _NEEDED:
                environment[variable[1]] = variable[2]
        elif not text.startswith("rm "):
            commands.append(text)
    if tuple(map(program, commands)) != _SHAPE:
        return None
    preprocess, front, preprocess_device, compile_device, assemble, pack, last = commands
    found = _IDENTITY.search(front)
    if found is None or found[1] not in compile_device or _WRITES_IDENTITY not in front or _RELOCATABLE in front:
        return None
    front = front.replace(_WRITES_IDENTITY, "")
    name = re.sub(r"\W", "_", Path(source).name)
    identity = f"_{hashlib.sha256(source.encode()).hexdigest()[:8]}_{len(name)}_{name}_kerneldyno"
    device = (preprocess_device, compile_device, assemble, pack)
    return Plan(environment, (preprocess, front), device, last, (Path(found[1]), identity))


def program(command: str) -> str:
    """Return which program a command of the plan runs; for the host's compiler, with what it does."""
    name = command.split(maxsplit=1)[0].strip('"').rpartition("/")[2]
    if name in ("gcc", "g++", "cc", "c++") or name.startswith(("gcc-", "g++-")):
        return "gcc -E" if " -E " in command else "gcc -c" if " -c " in command else name
    return name
