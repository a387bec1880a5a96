"""compute-sanitizer: how its tools are started, and their reports as plain rows.

torch's allocator keeps large pieces, in which a write past one tensor hits the next. So it is switched off, and the
tool pads what the driver allocates. Source: https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..shared.cuda_tools import find
from . import reports

#: Reports after which the tool stops writing. A kernel with one mistake makes one for each thread.
_MOST_WRITTEN = 1000
#: Most errors of different kind or place that are returned.
_MOST_ROWS = 50
#: Bytes that the tool adds behind each allocation, where no access is allowed.
_PADDING = 64 << 10
_LINE = re.compile(r"^========= ?(.*)$", re.MULTILINE)
#: Where an error is: "at kernel(float *)+0x1a0 in file.cu:27". Without line numbers the file is missing.
_PLACE = re.compile(r"\bat (.+?)\+0x[0-9a-f]+(?: in (.+?):(\d+))?$")
_SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)")
#: First words of the reports that are about accesses of a kernel. Others are about calls of the driver, which torch
#: makes as well, and about launches that failed because of those.
_OF_KERNELS = ("Invalid", "Uninitialized", "Barrier error", "Error: Race", "Error: Potential", "Warning: Race")


class Tool:
    """One run of one tool, with the log that it leaves in the scratch."""

    def __init__(self, asked: dict[str, Any], scratch: str) -> None:
        """Prepare a run of the tool with the `name` that is asked for."""
        name = asked["name"]
        self._log = Path(scratch, "sanitizer.log")
        # initcheck does not know that the judge has written the inputs, and would report every piece that is copied.
        more = {"memcheck": ["--padding", str(_PADDING)], "initcheck": ["--check-api-memory-access", "no"]}
        #: The beginning of the command line; the program to be observed follows.
        self.command = [
            find("compute-sanitizer") or "compute-sanitizer",
            *("--tool", name, "--log-file", str(self._log), "--print-limit", str(_MOST_WRITTEN)),
            *("--show-backtrace", "no", "--target-processes", "application-only", *more.get(name, [])),
            # The tool would wait ten seconds until the program opens the device, and the program for ever after that. An
            # import of torch beside other processes takes longer, and a lease may stop both.
            *("--launch-timeout", "0"),
        ]
        self.environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

    def read(self) -> dict[str, Any]:
        """Return the errors, and whether the tool came to its end."""
        said = reports.text(self._log)
        return {"errors": read_errors(said), "finished": _SUMMARY.search(said) is not None}


def read_errors(log: str) -> list[dict[str, Any]]:
    """Return the errors of kernels in a log: what, where, and how many of the same kind and place there were."""
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for block in _blocks(log):
        row = _error(block)
        if row is None:
            continue
        key = (row["what"], row["kernel"], row["file"], row["line"])
        if key in found:
            found[key]["count"] += 1
        elif len(found) < _MOST_ROWS:
            found[key] = row
    return list(found.values())


def _blocks(log: str) -> list[list[str]]:
    """Return the lines of each report: the first begins at the margin, and the others are indented."""
    blocks: list[list[str]] = []
    for line in _LINE.findall(log):
        if line.startswith(" "):
            if blocks:
                blocks[-1].append(line.strip())
        elif line.strip():
            blocks.append([line.strip()])
    return blocks


def _error(block: list[str]) -> dict[str, Any] | None:
    what, *rest = block
    if not what.startswith(_OF_KERNELS):
        return None
    places = [place for line in block if (place := _PLACE.search(line))]
    kernel, file, number = places[0].groups() if places else ("", "", "")
    # A race names both places in its first line; what differs between threads is left out of `what`.
    sentence = re.sub(r"\+0x[0-9a-f]+", "", what)
    return {
        "what": sentence[:300],
        "kernel": kernel,
        "file": file or "",
        "line": int(number or 0),
        "detail": "; ".join(rest)[:300],
        "count": 1,
    }
