"""Where NVIDIA's command-line tools are: in the CUDA toolkit that the environment names, in the usual one, or on PATH."""

from __future__ import annotations

import os
import shutil


def folders() -> list[str]:
    """Return the folders in which tools are looked for, in order. Not all of them need exist."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return [*(f"{home}/bin" for home in homes if home), *os.get_exec_path()]


def find(name: str) -> str | None:
    """Return the path of a tool such as "ncu", or None if this host has none."""
    return shutil.which(name, path=os.pathsep.join(folders()))
