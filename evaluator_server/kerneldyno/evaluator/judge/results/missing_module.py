"""Find the module that a reference imports and that is not installed, and say where to install it."""

from __future__ import annotations

import re
from importlib.util import find_spec

_MISSING = re.compile(r"No module named '([\w.]+)'")


def missing_module(type_name: str, message: str) -> str | None:
    """Return what to do about an exception of a reference, or None if it is not about a missing module.

    `type_name` and `message` are the exception's class and text.
    """
    found = _MISSING.match(message) if type_name == "ModuleNotFoundError" else None
    if found is None:
        return None
    package = found[1].partition(".")[0]
    if find_spec(package) is not None:
        return (
            f"the reference imports {found[1]}, which the {package} that is installed where the evaluator runs does not"
            f" have: install a {package} that has it in the evaluator's environment, and start the evaluator again"
        )
    return (
        f"the reference imports {package}, which is not installed where the evaluator runs: install it in the evaluator's"
        " environment (`python -m pip install ...`), and start the evaluator again"
    )
