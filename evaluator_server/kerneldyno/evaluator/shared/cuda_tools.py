"""Where NVIDIA's command-line tools are: in the CUDA toolkit that the environment names, in the usual one, or on PATH."""

from __future__ import annotations

import os
import shutil


def find(name: str) -> str | None:
    """Return the path of a tool such as "ncu", or None if this host has none."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [f"{home}/bin" for home in homes if home]
    return shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", "")]))
