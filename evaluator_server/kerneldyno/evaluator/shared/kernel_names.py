"""Names of kernels without what compilers and tools add to them, so that names from different tools can be compared."""

from __future__ import annotations

import re

#: What two tools call a namespace without a name.
_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::")


def plain(demangled: str) -> str:
    """Return a kernel's own name: without result, scope, template arguments and parameters; "" if there is none."""
    name = re.split(r"[<(]", _UNNAMED.sub("", demangled), maxsplit=1)[0].strip()
    return name.rpartition(" ")[2].rpartition("::")[2]
