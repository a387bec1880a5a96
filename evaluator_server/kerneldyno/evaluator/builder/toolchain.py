"""What besides a candidate's text determines a library: compilers, PyTorch, Python, our headers, the architecture."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

from ..shared.native_build import NativeBuild

_SECONDS = 30.0
_COMPILING = Path(__file__).parents[1] / "compiling"
_PROCESSOR = Path("/proc/cpuinfo")
#: Lines of it that say what `-march=native` means.
_KIND_OF_PROCESSOR = ("model name", "flags", "Features", "CPU part")


class Toolchain:
    """The compilers of this host. It is examined once, when the builder starts."""

    def __init__(self, architecture: str) -> None:
        """Examine the host. `architecture` is the GPU's, as in TORCH_CUDA_ARCH_LIST; empty without a GPU."""
        self.architecture = architecture
        self._digest = hashlib.sha256(json.dumps(self._facts()).encode()).hexdigest()
        self._processor = _processor()

    def key(self, build: NativeBuild) -> str:
        """Return the key of a build: equal builds by equal compilers have equal keys.

        Hosts may share a cache. What is built for the processor of one (`-march=native`) may not run on another.
        """
        flags = (*build.cpp_flags, *build.cuda_flags, *build.link_flags)
        processor = self._processor if any("native" in flag for flag in flags) else ""
        return hashlib.sha256(f"{self._digest} {processor} {build.digest}".encode()).hexdigest()

    def _facts(self) -> list[str]:
        programs = ["c++", _nvcc()]
        ours = sorted(path for path in _COMPILING.rglob("*") if path.suffix in (".h", ".py"))
        return [
            *map(_describe, programs),
            *(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in ours),
            f"{torch.__version__} {torch.version.git_version}",
            f"{sys.version} {sysconfig.get_config_var('SOABI')}",
            self.architecture,
        ]


def _processor() -> str:
    """Return what kind of processor this host has."""
    try:
        lines = _PROCESSOR.read_text().splitlines()
    except OSError:
        return ""
    return "\n".join(sorted({line for line in lines if line.startswith(_KIND_OF_PROCESSOR)}))


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return f"{home}/bin/nvcc" if home else "nvcc"


def _describe(program: str) -> str:
    """Return the program's path, size, time and version, or its name if there is none."""
    path = shutil.which(program)
    if path is None:
        return program
    status = os.stat(path)
    try:
        version = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        version = ""
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns} {version}"
