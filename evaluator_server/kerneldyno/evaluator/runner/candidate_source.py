"""The candidate's source files: written into its scratch, and imported as a module."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ..shared.native_build import NATIVE
from ..shared.tracebacks import CANDIDATE_FILE


def import_candidate(source: str, files: Sequence[tuple[str, str]], scratch: str) -> ModuleType:
    """Import the candidate as the module `candidate`, from a file because Triton's compiler needs one.

    Args:
        source: The entry file. If it is empty, the module is what `native` offers.
        files: Further files beside it: path and text of each.
        scratch: The directory for them, the runner's own.

    Raises:
        BaseException: Whatever the source raises.
    """
    for path, text in files:
        place = Path(scratch, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    if files:
        sys.path.insert(0, scratch)
    path = os.path.join(scratch, CANDIDATE_FILE)
    with open(path, "w", encoding="utf-8") as file:
        file.write(source or f"from {NATIVE} import *\n")
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module
