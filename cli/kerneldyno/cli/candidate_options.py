"""The candidate of `evaluate`: a file or a folder, and the options for the compilers of its native sources."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kerneldyno.cli.common import UsageError, read_source
from kerneldyno.client.candidates import NATIVE_BACKEND, read_candidate
from kerneldyno.client.errors import CandidateFilesError
from kerneldyno.rpc.candidate_files import flag_faults, has_native
from kerneldyno.rpc.input_files import STDIN
from kerneldyno.rpc.validation import DEFAULT_BACKEND
from kerneldyno.v1.evaluation_pb2 import BuildFlags, EvalRequest


def read_candidate_argument(path: Path) -> dict[str, Any]:
    """Return `kernel_code` and `kernel_files` of the candidate at `path`; - is a Python file on standard input.

    Raises:
        UsageError: it cannot be read, or it is no candidate.
    """
    if path == STDIN:
        return {"kernel_code": read_source(path)}
    try:
        return {name: value for name, value in read_candidate(path).items() if name != "backend"}
    except CandidateFilesError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options for the compilers. It is a group of options (see grouped.py)."""

    cuda_flag: Annotated[
        list[str] | None,
        typer.Option("--cuda-flag", metavar="FLAG", help="Flag for nvcc, for native sources: -O3. Repeatable."),
    ] = None
    cpp_flag: Annotated[
        list[str] | None,
        typer.Option("--cpp-flag", metavar="FLAG", help="Flag for the C++ compiler, for native sources. Repeatable."),
    ] = None
    library: Annotated[
        list[str] | None,
        typer.Option("--library", metavar="NAME", help="Library to link, by name: cublas. Repeatable."),
    ] = None

    def field(self, filed: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the field `build_flags`; None if no option was given.

        An item may hold several flags, or a flag and its value ("-Xptxas -v").

        Args:
            filed: this field in the file of --request. Options replace its flags of the same kind.

        Raises:
            UsageError: a flag is not allowed.
        """
        given = {"cuda": _split(self.cuda_flag), "cpp": _split(self.cpp_flag), "libraries": list(self.library or ())}
        if not any(given.values()):
            return None
        for field, description in flag_faults(BuildFlags(**given)):
            raise UsageError(f"{_OPTIONS[field]}: {description}")
        return {**filed, **{kind: flags for kind, flags in given.items() if flags}}

    def check(self, request: EvalRequest) -> None:
        """Raise UsageError if options were given, but nothing in `request` is compiled."""
        if (self.cuda_flag or self.cpp_flag or self.library) and not has_native(request.kernel_files):
            raise UsageError(
                "--cuda-flag, --cpp-flag and --library need a candidate with native sources: a folder with .cu or .cpp"
                " files, or one such file"
            )


#: Options by the field that they set.
_OPTIONS = {
    "build_flags.cuda": "--cuda-flag",
    "build_flags.cpp": "--cpp-flag",
    "build_flags.libraries": "--library",
}
#: Value for a command when no option was given.
NO_BUILD_OPTIONS = BuildOptions()


def default_backend(request: EvalRequest) -> str:
    """Return the backend for a request whose user named none."""
    return NATIVE_BACKEND if has_native(request.kernel_files) else DEFAULT_BACKEND


def _split(items: list[str] | None) -> list[str]:
    try:
        return [flag for item in items or () for flag in shlex.split(item)]
    except ValueError as error:  # a quotation without its end
        raise UsageError(f"a flag cannot be read: {error}") from error
