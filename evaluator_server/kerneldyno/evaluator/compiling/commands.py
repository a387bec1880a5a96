"""The compilers' command lines for a build, exactly as torch.utils.cpp_extension would run them with ninja."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from torch.utils import cpp_extension

from ..shared.native_build import NativeBuild

_NINJA_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compiler's command for one source."""

    #: Path of the source, relative to the build's directory.
    source: str
    command: list[str]

    @property
    def is_nvcc(self) -> bool:
        """True if the command is nvcc's."""
        return Path(self.command[0]).name == "nvcc"


def commands(build: NativeBuild, directory: Path) -> tuple[list[Compilation], list[str]]:
    """Write the build's files into `directory`, and return the compilers' commands and the linker's.

    Raises:
        OSError: A file could not be written, or a program is missing.
        RuntimeError: torch found no compiler or no ninja.
    """
    environment = {"TORCH_CUDA_ARCH_LIST": build.architectures} if build.architectures else {}
    with mock.patch.dict(os.environ, environment), mock.patch.object(cpp_extension, "_run_ninja_build"):
        order(build, directory)
    listed = subprocess.run(
        ["ninja", "-t", "commands"], cwd=directory, capture_output=True, text=True, check=True, timeout=_NINJA_SECONDS
    )
    *compilations, link = (shlex.split(line) for line in listed.stdout.splitlines() if line)
    return [Compilation(_source(command, directory), command) for command in compilations], link


def order(build: NativeBuild, directory: Path) -> None:
    """Write the build's files into `directory`, and let torch build the library there. Raises what torch raises."""
    for path, text in (*build.shown.items(), *build.files):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    cpp_extension._write_ninja_file_and_build_library(
        name=build.name,
        sources=[str(directory / path) for path in build.sources],
        extra_cflags=list(build.cpp_flags),
        extra_cuda_cflags=["-lineinfo", *build.cuda_flags],  # so that reports of errors name lines; code is the same
        extra_sycl_cflags=[],
        extra_ldflags=list(build.link_flags),
        extra_include_paths=[str(directory)],
        build_directory=str(directory),
        verbose=False,
        with_cuda=build.with_cuda,
        with_sycl=False,
        is_standalone=False,
    )


def _source(command: list[str], directory: Path) -> str:
    return str(Path(command[command.index("-c") + 1]).relative_to(directory))
