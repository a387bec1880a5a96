"""Libraries that were built before this runner existed: they answer the candidate's orders to build, by digest.

What was not built ahead, torch builds here and now, in the candidate's own sandbox.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from ..compiling import commands
from ..shared.native_build import NativeBuild
from . import extensions
from .native_module import Finder


def use(contents: dict[str, str], failures: dict[str, str], native: dict[str, Any] | None, scratch: str) -> None:
    """Answer orders to build from now on, and make `native` importable if there is such a build.

    Args:
        contents: By digest of a build, the library in base64.
        failures: By digest of a build, the compilers' messages, if it has failed.
        native: The build of the request's `kernel_files`; None if they have no native source.
        scratch: The runner's scratch.
    """

    def provide(build: NativeBuild, target: Path) -> bool:
        if (log := failures.get(build.digest)) is not None:
            raise RuntimeError(f"Error building extension '{build.name}': {log}")
        if (content := contents.get(build.digest)) is None:
            return False
        target.write_bytes(base64.b64decode(content))
        return True

    extensions.intercept(provide)
    if native is not None:
        build = NativeBuild.from_json(native)
        sys.meta_path.insert(0, Finder(build, lambda: _native(build, provide, Path(scratch, "native"))))


def _native(build: NativeBuild, provide: extensions.Provide, directory: Path) -> Path:
    """Return the path of the built library `native`. Raises what torch raises when a build fails."""
    directory.mkdir(exist_ok=True)
    target = directory / f"{build.name}{cpp_extension.LIB_EXT}"
    if not target.exists() and not provide(build, target):
        commands.order(build, directory)
    return target
